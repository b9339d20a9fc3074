"""Compares a converted model with its native source, while that one is still in memory.

On a padded batch, and while a text grows across each length at which either changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from zoo.base.errors import first_line
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.models import MIXERS, POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.models.parts import option
from zoo.registry import Task

from ..errors import ConversionError, DifferentOutputsError, NotComparedWarning
from ..verification import LARGEST, STEPS, draw_batch, draw_text, explained, turning_points

LENGTH = 24  # Tokens of the longest row, where the position table has as many
SIDES = ("without padding", "padded on the right", "padded on the left")  # Kinds of rows of the batch
LARGEST_PIECE = 2**24  # How many weights of one layer are converted to another type at a time


class ComputeIn(TorchFunctionMode):
    """Computes in a wider type than a model's weights have, converting each when it is used: no copy is held."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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
        return tensor.to(self.wider(tensor.dtype))

    def linear(self, states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply by a large matrix, some of its rows at a time. Arguments as for PyTorch's function."""
        rows = max(1, LARGEST_PIECE // weight.shape[1])
        states = self.widen(states)
        product = torch.cat([F.linear(states, self.widen(piece)) for piece in weight.split(rows)], dim=-1)
        return product if bias is None else product + bias


@dataclass(frozen=True)
class Observation:
    """Outputs of a native model, and how a converted one is compared with them."""

    values: Tensor
    run: Callable[[ZooPreTrainedModel], Tensor]  # Computes them in a converted model
    worst: Callable[[Tensor], dict[str, float]]  # Largest differences by the kind of inputs, a phrase


def observe(native: PreTrainedModel, config: ZooConfig, task: str, output: str) -> list[Observation]:
    """Let a native model read a batch, and texts that grow; nothing where it has no weights yet."""
    if any(parameter.is_meta for parameter in native.parameters()):
        return []
    inputs = sample(config, task)
    try:
        if POSITIONS.get(config.position).changes_after(config) is not None:
            # Dynamic frequencies stay those of the longest text that the model has read, until it reads a short one.
            compute(native, {name: tensor[:1, :1] for name, tensor in inputs.items()}, config, output)
        values = compute(native, inputs, config, output)
        if task == Task.SEQUENCE_CLASSIFICATION and config.classifier_pooling == "cls":
            # The native heads read the first position, even if it is padding; the zoo's the first token.
            values[-1:] = compute(native, only_tokens(inputs, config), config, output)
        elif (
            config.mixer == "short-conv" and option(config, MIXERS.get(config.mixer), "conv_bias") and values.ndim == 3
        ):
            # The native convolution reads the bias of its input's map at padding; the zoo's reads nothing there.
            tokens = inputs["attention_mask"][-1].nonzero().squeeze(1)
            values[-1, tokens] = compute(native, only_tokens(inputs, config), config, output)[0]
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise ConversionError(f"{type(native).__name__} itself fails on a small batch: {first_line(error)}") from error

    def by_row(distance: Tensor) -> dict[str, float]:
        if distance.ndim == 3 and "decoder_input_ids" not in inputs:
            distance = distance.masked_fill(inputs["attention_mask"][..., None] == 0, 0.0)
        return dict(zip(SIDES, (float(row.max()) for row in distance), strict=False))

    batch = Observation(values, lambda model: compute(model, inputs, config, output), by_row)
    points, writes = turning_points(config), task in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM)
    lengths = all_lengths(config, points, native.num_parameters()) if writes or points else ()
    at_once = writes and "positions" not in points.values()  # outputs of a token depend on no later ones
    return [batch, *[grow(native, config, output, each, at_once=at_once) for each in lengths]]


def sample(config: ZooConfig, task: str) -> dict[str, Tensor]:
    """A batch of three rows: not padded, padded on the right, padded on the left."""
    generator = torch.Generator().manual_seed(0)
    # Beyond, the native model rotates a row by the length of the longest one.
    changes = POSITIONS.get(config.position).changes_after(config)
    longest = min(LENGTH, config.max_position_embeddings, changes or LENGTH)
    mask = torch.ones(len(SIDES), longest, dtype=torch.long)
    mask[1, 2 * longest // 3 :] = 0
    mask[2, : longest // 2] = 0
    given = draw_batch(config, mask, max(1, longest - 1), generator)
    if config.pad_token_id is None and task == Task.SEQUENCE_CLASSIFICATION:  # by which decoders find the last token
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
    with computing(model):
        found: Tensor = getattr(model(**given, return_dict=True), output)
    return found.cpu()


@contextmanager
def computing(model: PreTrainedModel) -> Iterator[None]:
    """Compute in float32 at least for a while, without dropout, and experts by a matmul that supports float64."""
    training = [module for module in model.modules() if module.training]
    configs = {id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)}
    chosen = [(config, config._experts_implementation) for config in configs.values()]
    model.eval()
    for config, _ in chosen:
        config._experts_implementation = "batched_mm"
    try:
        with ComputeIn(torch.float32):
            yield
    finally:
        for module in training:
            module.training = True
        for config, implementation in chosen:
            config._experts_implementation = implementation


def require_same(name: str, seen: list[Observation], model: ZooPreTrainedModel) -> None:
    for one in seen:
        ours = one.run(model)
        distance = (ours - one.values).abs().masked_fill(~one.values.isfinite(), 0.0)
        differences = one.worst(distance.nan_to_num(nan=torch.inf, posinf=torch.inf))  # where ours are not finite
        side = max(differences, key=lambda row: differences[row])
        finite = one.values[one.values.isfinite()]

        def noise(one: Observation = one, ours: Tensor = ours) -> float:
            with ComputeIn(torch.float64):
                precise = one.run(model)
            return float((ours.double() - precise.double()).nan_to_num().abs().max())

        allowed = explained(differences[side], float(finite.abs().max()) if finite.numel() else 0.0, noise)
        if not differences[side] <= allowed:
            raise DifferentOutputsError(name, differences[side], allowed, side)


PROMPT = 4  # Tokens of the shortest prompt


def all_lengths(config: ZooConfig, points: Mapping[int, str], num_parameters: int) -> Iterator[range]:
    """Where to look: from the token before each length at which something changes."""
    found = {PROMPT, *(max(1, point - 1) for point in points)} - {1}
    longest = max(found) + STEPS if "positions" in points.values() else config.max_position_embeddings
    for start in sorted(found):
        if start * num_parameters > LARGEST:
            warnings.warn(
                NotComparedWarning(
                    f"the model was not compared with the native one beyond {start} tokens, where its "
                    f"{points.get(start + 1, 'window')} would be: it is too large for that"
                ),
                stacklevel=2,
            )
        elif start + STEPS <= longest:
            yield range(start, start + STEPS + 1)


def grow(native: PreTrainedModel, config: ZooConfig, output: str, lengths: range, *, at_once: bool) -> Observation:
    """Let a native model read one text that grows to some lengths; a converted one does on its cache."""
    generator = torch.Generator().manual_seed(0)
    text, inputs = "input_ids", dict[str, Tensor]()
    if config.stack == "encoder-decoder":
        inputs, text = draw_text(config, text, 1, PROMPT, generator), "decoder_input_ids"
    inputs |= draw_text(config, text, 1, lengths[-1], generator)

    def read(model: PreTrainedModel, length: int) -> Tensor:
        outputs = compute(model, {**inputs, text: inputs[text][:, :length]}, config, output)
        return outputs if outputs.ndim == 2 else outputs[:, -1]

    def run(model: ZooPreTrainedModel) -> Tensor:
        if model.can_generate():
            return generated(model, inputs, text, lengths)
        return torch.cat([read(model, length) for length in lengths])

    if at_once:
        values = compute(native, inputs, config, output)[0, [length - 1 for length in lengths]]
    else:
        values = torch.cat([read(native, length) for length in lengths])
        read(native, 1)  # as in `observe`
    side = f"that grow from {lengths[0]} to {lengths[-1]} tokens"
    return Observation(values, run, lambda distance: {side: float(distance.max())})


@torch.no_grad()
def generated(model: Any, inputs: dict[str, Tensor], grows: str, lengths: range) -> Tensor:
    """Scores of the next token after a prompt, then of one more token on the cache each. *Shape:* (STEPS + 1, size)."""
    inputs = {field: ids.to(model.device) for field, ids in inputs.items()}
    text, given, found = inputs.pop(grows), {}, []
    with computing(model):
        if inputs:
            given["encoder_outputs"] = model.get_encoder()(**inputs)
        for length in lengths:
            options = {"use_cache": True, "next_sequence_length": 1 if CACHE_NAME in given else None}
            step = model.prepare_inputs_for_generation(text[:, :length], **given, **options)
            outputs = model(**step, return_dict=True)
            given[CACHE_NAME] = getattr(outputs, CACHE_NAME)
            found.append(outputs.logits[0, -1:].cpu())
    return torch.cat(found)
