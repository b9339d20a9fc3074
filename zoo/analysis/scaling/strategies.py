"""Accelerators by their makers' data sheets, and strategies that spread a model over several."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.training_args import OptimizerNames

from zoo.analysis.drawing.reading import signature
from zoo.analysis.measuring import Flops
from zoo.analysis.measuring.flops import count_sequence
from zoo.base.errors import ConfigError, UnknownNameError
from zoo.building.builder import PATTERNS, skeleton
from zoo.models import ZooPreTrainedModel
from zoo.models.parallel import wildcard
from zoo.models.residual import SingleStream
from zoo.models.roles import hidden_matrices
from zoo.models.stack import ZooStack

from .simulating import Peak, Precision, StepMemory, cache_bytes, step_memory


@dataclass(frozen=True)
class Device:
    """An accelerator."""

    name: str  # Usual name
    memory: int  # Bytes, as `nvidia-smi` shows
    flops: float  # Operations a second of matrix products in bfloat16 that add up in float32, without sparsity
    bandwidth: float  # Bytes a second between memory and chip
    link: float  # Bytes a second that go out to the other devices of a machine, and as many come in
    network: float  # The same to other machines, for each device of one that is built as the maker builds them
    source: str  # Where this is written


def read_devices() -> Iterator[tuple[str, Device]]:
    with Path(__file__).with_name("devices.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            speeds = {name: float(row[name]) for name in ("flops", "bandwidth", "link", "network")}
            yield row["name"], Device(row["title"], int(row["mib"]) * 2**20, **speeds, source=row["source"])


DEVICES = dict(read_devices())  # By the names that commands take


def find_device(name: str) -> Device:
    known = name.lower().replace(" ", "-").replace("_", "-")
    if known not in DEVICES:
        raise UnknownNameError(name, DEVICES, kind="device")
    return DEVICES[known]


FEW = 2  # Layers of a stack after which each further one takes as much memory as the one before
NODE = 8  # Devices of a machine, and of a group that shares a layer by tensor parallelism
FLOAT32, BFLOAT16 = 4, 2  # Bytes of a number

OPTIMIZER_STATES = {
    **dict.fromkeys(("adafactor", "lomo", "adalomo", "sgd"), 0),
    **dict.fromkeys(("muon", "lion", "rmsprop", "adagrad", "schedule_free_sgd"), 1),
    **dict.fromkeys(("ademamix", "grokadamw"), 3),
}
"""Numbers that an optimiser keeps for each weight at least, where it is not two."""


LOW_RANK = ("galore_", "apollo_")  # Projected gradients: Zhao et al. 2024; Zhu et al. 2024
RANK = 128  # Their default in transformers


def optimizer_states(optim: str, model: PreTrainedModel | None = None, rank: int = RANK) -> float:
    """Numbers of 32 bits that an optimiser keeps for each weight, on average over those of a model, or at least.

    Optimisers of low rank have all linear maps as `optim_target_modules`.
    """
    low_rank, start = optim.startswith(LOW_RANK), "|".join(("paged_", *LOW_RANK))
    kind, bits = re.findall(rf"^(?:{start})?(\w+?)(?:_bnb)?(?:_(\d+)bit)?(?:_layerwise)?$", optim)[0]
    each = OPTIMIZER_STATES.get(kind, 2) * int(bits or 32) / 32
    if model is None:
        return 0 if low_rank else each
    if kind == "muon":
        once = sum(parameter.numel() for parameter in hidden_matrices(model))
        return 2 - once / model.num_parameters()
    linear = {f"{name}.weight" for name, module in model.named_modules() if low_rank and isinstance(module, nn.Linear)}
    kept = 0.0
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        if name in linear:
            small, large = sorted(shape)
            projected = min(rank, small) if optim.startswith("galore_") else rank
            kept += projected * small  # the projection, in 32 bits
            shape = torch.Size((projected, large))
        kept += factored(shape) if kind in ("adafactor", "adalomo") else each * shape.numel()
    return kept / model.num_parameters()


def factored(shape: torch.Size) -> int:
    """Numbers that Adafactor keeps for a tensor (Shazeer and Stern 2018, section 3): sums of rows and of columns."""
    return shape.numel() if len(shape) < 2 else shape[:-1].numel() + shape[:-2].numel() * shape[-1]


OPTIMIZERS = ("muon", *(one.value for one in OptimizerNames))  # Valid values of `optim`: transformers' and Muon
Settings = tuple[tuple[str, Any], ...]  # Fields of a configuration and their values


SLICED = (
    *("num_attention_heads", "num_key_value_heads", "decoder_attention_heads"),
    *("intermediate_size", "decoder_intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"),
    *("vocab_size", "decoder_vocab_size"),
)
"""Quantities that tensor parallelism divides."""


class Strategy(StrEnum):
    """How a training step is spread over devices."""

    ONE = "one device"  # All of it on one
    DDP = "DDP"  # The whole model on each, with its own sequences; gradients are averaged
    FSDP2 = "FSDP2"  # A part of every weight on each; a layer's weights are gathered when it is computed
    TENSOR_PARALLEL = "tensor parallel"  # FSDP2 over machines, and in each some heads and channels a device


@dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a training step."""

    parameters: int  # Weights in float32
    gradients: int  # Theirs, in float32; with DDP as well in the buckets that are averaged
    optimizer: int  # Its states, in float32
    gathered: int  # With FSDP2, whole weights and gradients of the layers at work, in bfloat16
    activations: int  # Bytes of the body for its backward pass and in it; copies of the weights in bfloat16 too
    logits: int  # Bytes of the output projection and the loss, and of layers that predict further tokens

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


@dataclass(frozen=True)
class Share:
    """Work of one device in a training step."""

    strategy: Strategy  # How the step is spread
    checkpointing: bool  # Whether layers are computed again in the backward pass
    slices: int  # Devices that compute a layer together
    shards: int  # Devices that keep a part of every weight each
    num_parameters: int  # Of the model, or of the slice that this device computes
    learning: int  # Weights with gradients at one time
    gathered: int  # Weights that are gathered at one time
    states: float  # Numbers that the optimiser keeps for a weight
    step: StepMemory  # Quantities that depend on the batch

    def memory(self, sequences: int) -> Memory:
        shard = -(-self.num_parameters // self.shards) * FLOAT32
        return Memory(
            parameters=shard,
            gradients=-(-self.learning // self.shards) * FLOAT32 * (2 if self.strategy == Strategy.DDP else 1),
            optimizer=round(shard * self.states),
            gathered=self.gathered * 2 * BFLOAT16,
            activations=self.step.body.at(sequences),
            logits=self.step.logits(sequences),
        )


def share_of(
    name: str, task: str, seq_len: int, devices: int, strategy: Strategy, *, checkpointing: bool, optim: str
) -> Share:
    slices = min(NODE, devices) if strategy == Strategy.TENSOR_PARALLEL else 1
    is_sharded = strategy in (Strategy.FSDP2, Strategy.TENSOR_PARALLEL)
    settings = sliced(name, task, slices) if slices > 1 else ()
    model = hollow(name, task, settings)
    if is_sharded and model.config.is_encoder_decoder and model.all_tied_weights_keys:
        raise ConfigError("FSDP cannot shard an encoder-decoder with shared embeddings: tie_word_embeddings=False")
    return Share(
        strategy=strategy,
        checkpointing=checkpointing,
        slices=slices,
        shards=devices // slices if is_sharded else 1,
        num_parameters=model.num_parameters(),
        learning=max(one.numel() for one in model.parameters()) if "layerwise" in optim else model.num_parameters(),
        gathered=gathered_parameters(model) if is_sharded else 0,
        states=optimizer_states(optim, model),
        step=simulated(name, task, settings, seq_len, is_sharded=is_sharded, checkpointing=checkpointing),
    )


@cache
def hollow(name: str, task: str, settings: Settings = ()) -> ZooPreTrainedModel:
    """Build a model on the meta device, without attention dropout: GPU kernels draw its random numbers again."""
    return skeleton(name, task, **{"attention_dropout": 0.0, **dict(settings)})


@cache
def simulated(
    name: str, task: str, settings: Settings, seq_len: int, *, is_sharded: bool, checkpointing: bool
) -> StepMemory:
    """Simulate a training step as the zoo's trainer does it, for a few layers, and count on from there."""
    precision = Precision.BFLOAT16 if is_sharded else Precision.MIXED

    def step(depths: Settings) -> tuple[int, ...]:
        model = hollow(name, task, (*settings, *depths))
        found = step_memory(model, seq_len, precision=precision, checkpointing=checkpointing, whole_logits=is_sharded)
        return tuple(size for peak in found for size in peak)

    sizes = counted_on(name, task, step)
    return StepMemory(*(Peak(*sizes[start : start + 3]) for start in (0, 3, 6)))


@cache
def flops_of(name: str, task: str, seq_len: int) -> Flops:
    def count(depths: Settings) -> tuple[int, ...]:
        found = count_sequence(hollow(name, task, depths), seq_len)
        return found.forward, found.training, found.tokens

    return Flops(*counted_on(name, task, count))


@cache
def cache_of(name: str, task: str, seq_len: int) -> int | None:
    """Find the memory of the cache of one sequence in bfloat16; None for a model that does not write."""
    if not hollow(name, task).can_generate():
        return None
    return counted_on(name, task, lambda depths: (cache_bytes(hollow(name, task, depths), seq_len),))[0]


def counted_on(name: str, task: str, measure: Callable[[Settings], tuple[int, ...]]) -> tuple[int, ...]:
    """Measure a model of a few layers, and count on from there to all that it has, if these are alike."""
    model = hollow(name, task)
    config = model.config
    depths = {"num_hidden_layers": config.num_hidden_layers}
    if config.is_encoder_decoder:
        depths["decoder_layers"] = config.decoder_layers
    if max(depths.values()) <= FEW or not all(are_alike(one) for one in model.modules() if isinstance(one, ZooStack)):
        return measure(())
    few = {stack: min(depth, FEW) for stack, depth in depths.items()}
    start = measure(tuple(few.items()))
    found = start
    for stack, depth in depths.items():
        if depth > FEW:
            deeper = measure(tuple({**few, stack: FEW + 1}.items()))
            found = tuple(
                so_far + (more - less) * (depth - FEW) for so_far, more, less in zip(found, deeper, start, strict=True)
            )
    return found


def are_alike(stack: ZooStack) -> bool:
    """Whether further layers of a stack take as much each. Fewer layers are the end of a pattern."""
    has_pattern = any(getattr(stack.config, name, None) for name in PATTERNS)
    layers = stack.layers if has_pattern else stack.layers[FEW:]
    return isinstance(stack.stream, SingleStream) and len({signature(layer) for layer in layers}) <= 1


def sliced(name: str, task: str, slices: int) -> Settings:
    """The settings of what one device computes of every layer: a model with as many times fewer heads and channels."""
    model = hollow(name, task)
    config = model.config
    sizes = {key: value for key in SLICED if (value := getattr(config, key, None)) is not None}
    heads = {key: value for key, value in sizes.items() if key.endswith("heads")}
    if odd := next((key for key, value in heads.items() if value % slices), None):
        raise ConfigError(f"{odd}={sizes[odd]} cannot be divided by {slices}")
    settings = (("head_dim", config.head_dim), *((key, -(-value // slices)) for key, value in sizes.items()))
    parts = zip(model.named_parameters(), hollow(name, task, settings).parameters(), strict=True)
    smaller = [key for (key, one), other in parts if one.shape != other.shape]
    places = ((key, {wildcard(key), wildcard(key.rpartition(".")[0])}) for key in smaller)
    if whole := next((key for key, names in places if names.isdisjoint(model.tp_plan)), None):
        raise ConfigError(f"{whole} of {name!r} cannot be sliced")
    return settings


def gathered_parameters(model: ZooPreTrainedModel) -> int:
    """Count the weights that FSDP2 has in one piece at one time."""
    layers = [
        sum(parameter.numel() for parameter in layer.parameters())
        for layer in model.modules()
        if type(layer).__name__ in (model._no_split_modules or ())
    ]
    return model.num_parameters() - sum(layers) + 2 * max(layers, default=0)
