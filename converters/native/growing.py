"""Compares a converted model with the native one while a text grows, across each length at which either changes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zoo.models import POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from ..errors import NotComparedWarning
from ..samples import without_padding
from .comparing import ComputeIn, compute, in_any_precision, in_evaluation, require_close

PROMPT = 4
"""Tokens of the shortest prompt."""

STEPS = 2
"""How many further tokens are read, one at a time."""

LARGEST = 2e10
"""Up to how many tokens times parameters are compared: beyond these it would take minutes on a CPU."""


@dataclass(frozen=True)
class Growth:
    """What a native model computes while a text grows.

    Args:
        inputs: The whole text, and what encoders read. *Shape:* (1, length), (1, source_len)
        text: Which of the inputs grows.
        lengths: At how many tokens the outputs were taken, one after another.
        values: The outputs at the last position. *Shape:* (STEPS + 1, size)
    """

    inputs: dict[str, Tensor]
    text: str
    lengths: range
    values: Tensor


def observe_growth(native: PreTrainedModel, config: ZooConfig, task: str, output: str) -> tuple[Growth, ...]:
    """Let a native model read texts that grow, without its cache."""
    changes = POSITIONS.get(config.position).changes_after(config)
    if task not in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM) and changes is None:
        return ()
    return tuple(grow(native, config, output, lengths) for lengths in all_lengths(config, native.num_parameters()))


def all_lengths(config: ZooConfig, num_parameters: int) -> Iterator[range]:
    """Where to look: from the token before each length at which something changes."""
    changes = POSITIONS.get(config.position).changes_after(config)
    found = {PROMPT, max(1, (config.sliding_window or 0) - 1), max(1, (changes or 0) - 1)} - {1}
    longest = config.max_position_embeddings if changes is None else max(found) + STEPS
    for start in sorted(found):
        if start * num_parameters > LARGEST:
            warnings.warn(
                NotComparedWarning(
                    f"the model was not compared with the native one beyond {start} tokens, where its "
                    f"{'positions' if start + 1 == changes else 'window'} would be: it is too large for that"
                ),
                stacklevel=2,
            )
        elif start + STEPS <= longest:
            yield range(start, start + STEPS + 1)


def grow(native: PreTrainedModel, config: ZooConfig, output: str, lengths: range) -> Growth:
    """Let a native model read one text that grows. Arguments as for `observe_growth` and [`Growth`][]."""
    generator = torch.Generator().manual_seed(0)
    text, size = "input_ids", config.vocab_size
    inputs: dict[str, Tensor] = {}
    if config.stack == "encoder-decoder":
        inputs[text] = torch.randint(0, size, (1, PROMPT), generator=generator)
        text, size = "decoder_input_ids", config.decoder_vocab_size
    inputs[text] = without_padding(torch.randint(0, size, (1, lengths[-1]), generator=generator), config, size)
    if POSITIONS.get(config.position).changes_after(config) is None:
        values = last(compute(native, inputs, config, output), torch.tensor(lengths) - 1)
    else:
        values = torch.cat([last(compute(native, cut(inputs, text, n), config, output)) for n in lengths])
        compute(native, cut(inputs, text, 1), config, output)  # as in `observe`
    return Growth(inputs, text, lengths, values)


def cut(inputs: dict[str, Tensor], text: str, length: int) -> dict[str, Tensor]:
    """The inputs with a shorter text."""
    return {**inputs, text: inputs[text][:, :length]}


def last(outputs: Tensor, positions: Tensor | None = None) -> Tensor:
    """Outputs at some positions, by default the last.

    Args:
        outputs: *Shape:* (1, seq_len, size) or (1, size)

    Returns:
        *Shape:* (steps, size)
    """
    if outputs.ndim == 2:
        return outputs
    return outputs[0, -1:] if positions is None else outputs[0, positions]


def require_same_growth(name: str, seen: tuple[Growth, ...], model: ZooPreTrainedModel, output: str) -> None:
    """Require a converted model to compute on its cache what the native one did without."""
    for growth in seen:
        side = f"that grow from {growth.lengths[0]} to {growth.lengths[-1]} tokens"

        def run(growth: Growth = growth) -> Tensor:
            if not model.can_generate():
                found = (
                    compute(model, cut(growth.inputs, growth.text, n), model.config, output) for n in growth.lengths
                )
                return torch.cat([last(outputs) for outputs in found])
            return generated(model, growth)

        def distances(ours: Tensor, growth: Growth = growth, side: str = side) -> dict[str, float]:
            distance = (ours - growth.values).abs().masked_fill(~growth.values.isfinite(), 0.0)
            return {side: float(distance.nan_to_num(nan=torch.inf).max())}

        require_close(name, growth.values, run, distances)


@torch.no_grad()
def generated(model: Any, growth: Growth) -> Tensor:
    """Scores of the next token, the first of a prompt, all others of one more token on the cache, as `generate` does.

    Returns:
        *Shape:* (STEPS + 1, size)
    """
    inputs = {field: ids.to(model.device) for field, ids in growth.inputs.items()}
    text, given, found = inputs.pop(growth.text), {}, []
    with in_evaluation(model), in_any_precision(model), ComputeIn(torch.float32):
        if inputs:
            given["encoder_outputs"] = model.get_encoder()(**inputs)
        for length in growth.lengths:
            options = {"use_cache": True, "next_sequence_length": 1 if "past_key_values" in given else None}
            step = model.prepare_inputs_for_generation(text[:, :length], **given, **options)
            outputs = model(**step, return_dict=True)
            given["past_key_values"] = outputs.past_key_values
            found.append(outputs.logits[0, -1:].cpu())
    return torch.cat(found)
