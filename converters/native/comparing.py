"""Compares a converted model with the native one that it was made of, while that one is still in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from zoo.models import MIXERS, POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.models.parts import option
from zoo.registry import Task

from ..errors import ConversionError, DifferentOutputsError
from ..samples import without_padding
from ..verification import explained

LENGTH = 24
"""Tokens of the longest row, where the position table has as many."""

SIDES = ("without padding", "padded on the right", "padded on the left")
"""What the rows of the batch are."""

LARGEST_PIECE = 2**24
"""How many weights of one layer are converted to another type at a time."""


class ComputeIn(TorchFunctionMode):
    """Computes in a wider type than a model's weights have, converting each when it is used: no copy is held.

    Args:
        dtype: The type.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function of torch on converted tensors."""
        kwargs = kwargs or {}
        if func == Tensor.dtype.__get__:  # type: ignore[attr-defined]
            return self.wider(func(*args))
        if getattr(func, "__name__", "") == "__get__":
            return func(*args)
        if func in (F.embedding, torch.embedding):  # of a table, only the rows that were looked up
            return self.widen(func(*args, **kwargs))
        if func is F.linear and args[1].numel() > LARGEST_PIECE:
            return self.linear(*args, **kwargs)
        args, kwargs = tree_map_only(Tensor, self.widen, (args, kwargs))
        return func(*args, **kwargs)

    def wider(self, dtype: torch.dtype) -> torch.dtype:
        """The wider of two types, where both are floating."""
        return torch.promote_types(dtype, self.dtype) if dtype.is_floating_point else dtype

    def widen(self, tensor: Tensor) -> Tensor:
        """Convert a tensor, unless it is wide enough."""
        return tensor.to(self.wider(tensor.dtype))

    def linear(self, states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply by a large matrix, some of its rows at a time. Arguments as for PyTorch's function."""
        rows = max(1, LARGEST_PIECE // weight.shape[1])
        states = self.widen(states)
        product = torch.cat([F.linear(states, self.widen(piece)) for piece in weight.split(rows)], dim=-1)
        return product if bias is None else product + bias


@dataclass(frozen=True)
class Observation:
    """What a native model computes.

    Args:
        name: Its class.
        inputs: A batch of three rows: not padded, padded on the right, padded on the left.
        output: Where the outputs are: "logits" or "last_hidden_state".
        values: The outputs.
    """

    name: str
    inputs: dict[str, Tensor]
    output: str
    values: Tensor


def observe(native: PreTrainedModel, config: ZooConfig, task: str, output: str) -> Observation | None:
    """Let a native model compute."""
    if any(parameter.is_meta for parameter in native.parameters()):
        return None
    inputs = sample(config, task)
    try:
        if POSITIONS.get(config.position).changes_after(config) is not None:
            # Dynamic frequencies stay those of the longest text that the model has read, until it reads a short one.
            compute(native, {name: tensor[:1, :1] for name, tensor in inputs.items()}, config, output)
        values = compute(native, inputs, config, output)
        if task == Task.SEQUENCE_CLASSIFICATION and config.classifier_pooling == "cls":
            # The native heads read the first position, padding if that stands there; the zoo's the first token.
            values[-1:] = compute(native, only_tokens(inputs, config), config, output)
        elif (
            config.mixer == "short-conv" and option(config, MIXERS.get(config.mixer), "conv_bias") and values.ndim == 3
        ):
            # The native convolution reads the bias of its input's map at padding; the zoo's reads nothing there.
            tokens = inputs["attention_mask"][-1].nonzero().squeeze(1)
            values[-1, tokens] = compute(native, only_tokens(inputs, config), config, output)[0]
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConversionError(f"{type(native).__name__} itself fails on a small batch: {reason}") from error
    return Observation(type(native).__name__, inputs, output, values)


def sample(config: ZooConfig, task: str, seed: int = 0) -> dict[str, Tensor]:
    """Draw a batch.

    Args:
        config: The settings of the model.
        task: What its head is for.
        seed: Of the random numbers.

    Returns:
        Arguments of a call.
    """
    generator = torch.Generator().manual_seed(seed)
    # Beyond, the native model rotates a row by the length of the longest one.
    changes = POSITIONS.get(config.position).changes_after(config)
    longest = min(LENGTH, config.max_position_embeddings, changes or LENGTH)
    pad = config.pad_token_id

    def ids(length: int, size: int) -> Tensor:
        return without_padding(torch.randint(0, size, (len(SIDES), length), generator=generator), config, size)

    mask = torch.ones(len(SIDES), longest, dtype=torch.long)
    mask[1, 2 * longest // 3 :] = 0
    mask[2, : longest // 2] = 0
    given = {"input_ids": ids(longest, config.vocab_size).masked_fill(mask == 0, pad or 0), "attention_mask": mask}
    if config.stack == "encoder" and config.type_vocab_size:
        given["token_type_ids"] = torch.randint(0, config.type_vocab_size, mask.shape, generator=generator)
    if config.stack == "encoder-decoder":
        given["decoder_input_ids"] = ids(max(1, longest - 1), config.decoder_vocab_size)
    if pad is None and task == Task.SEQUENCE_CLASSIFICATION:  # by which decoders find the last token
        return {name: tensor[:1] for name, tensor in given.items()}
    return given


def only_tokens(inputs: dict[str, Tensor], config: ZooConfig) -> dict[str, Tensor]:
    """Take the row that is padded on the left, and its padding away."""
    tokens = inputs["attention_mask"][-1].nonzero().squeeze(1)
    kept = {name: tensor[-1:, tokens] for name, tensor in inputs.items()}
    return {**kept, "position_ids": tokens[None]} if config.position == "learned" else kept


@torch.no_grad()
def compute(model: PreTrainedModel, inputs: dict[str, Tensor], config: ZooConfig, output: str) -> Tensor:
    """Run a model, in float32 at least."""
    given: dict[str, Any] = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    if config.stack != "encoder":
        given["use_cache"] = False
    with in_evaluation(model), in_any_precision(model), ComputeIn(torch.float32):
        found: Tensor = getattr(model(**given, return_dict=True), output)
    return found.cpu()


@contextmanager
def in_evaluation(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off for a while."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def in_any_precision(model: PreTrainedModel) -> Iterator[None]:
    """Run experts, where there are any, by a product that knows float64 for a while: the grouped one does not."""
    configs = {id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)}
    chosen = [(config, config._experts_implementation) for config in configs.values()]
    for config, _ in chosen:
        config._experts_implementation = "batched_mm"
    try:
        yield
    finally:
        for config, implementation in chosen:
            config._experts_implementation = implementation


def require_same(seen: Observation, model: ZooPreTrainedModel) -> None:
    """Require a converted model to compute what the native one did."""
    require_close(
        seen.name,
        seen.values,
        lambda: compute(model, seen.inputs, model.config, seen.output),
        lambda ours: by_row(ours, seen),
    )


def require_close(
    name: str, values: Tensor, run: Callable[[], Tensor], distances: Callable[[Tensor], dict[str, float]]
) -> None:
    """Require outputs to be those of the native model."""
    ours = run()
    differences = distances(ours)
    side = max(differences, key=lambda row: differences[row])
    finite = values[values.isfinite()]

    def noise() -> float:
        with ComputeIn(torch.float64):
            precise = run()
        return float((ours.double() - precise.double()).nan_to_num().abs().max())

    allowed = explained(differences[side], float(finite.abs().max()) if finite.numel() else 0.0, noise)
    if not differences[side] <= allowed:
        raise DifferentOutputsError(name, differences[side], allowed, side)


def by_row(ours: Tensor, seen: Observation) -> dict[str, float]:
    """Measure how far a model is from the native one."""
    distance = (ours - seen.values).abs().masked_fill(~seen.values.isfinite(), 0.0)
    distance = distance.nan_to_num(nan=float("inf"), posinf=float("inf"))
    if distance.ndim == 3 and "decoder_input_ids" not in seen.inputs:
        distance = distance.masked_fill(seen.inputs["attention_mask"][..., None] == 0, 0.0)
    return dict(zip(SIDES, (float(row.max()) for row in distance), strict=False))
