"""How fast a model reads and writes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from zoo.models.validation import require_at_least
from zoo.registry.variants import active_quirks

from .machine import durations

MOST_STEPS = 32  # Tokens that one generation writes
FEWEST_STEPS = 4  # Minimum length of a generation for a measurement
PASSED = ("input_ids", "attention_mask")  # Keys of a batch that are given to a model


@dataclass(frozen=True)
class DecodeSpeed:
    """How fast tokens are written.

    Attributes:
        tokens_per_second: Of all sequences together.
        p50: Median seconds from one token to the next.
        p95: The same of the slowest twentieth.
    """

    tokens_per_second: float
    p50: float
    p95: float


@torch.inference_mode()
def prefill_speed(model: PreTrainedModel, batch: Mapping[str, Any], seconds: float) -> float:
    """Measure how fast a batch of prompts is read: by the encoder if it has one, else by the whole model.

    Args:
        model: The model, in evaluation mode.
        batch: Inputs.
        seconds: How long to measure, at least three times.

    Returns:
        Tokens a second, padding excluded: of the median run.
    """
    prompts = {name: batch[name] for name in PASSED if name in batch}
    reader = model.get_encoder() if model.config.is_encoder_decoder else model
    generates = model.can_generate() and not model.config.is_encoder_decoder
    options = {"use_cache": True, "logits_to_keep": 1} if generates else {}
    reader(**prompts, **options)
    return num_tokens(prompts) / median(durations(lambda: reader(**prompts, **options), model.device, seconds))


def training_speed(model: PreTrainedModel, batch: Mapping[str, Any], seconds: float) -> float:
    """Measure how fast a model trains: a forward and a backward pass, clipping and a step of AdamW.

    Arguments as for [`prefill_speed`][], with labels in the batch. The model's weights stay as they are.

    Returns:
        Tokens a second, padding and targets excluded: of the median step.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)

    def step() -> None:
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    was_training = model.training
    model.train()
    step()  # which allocates the optimiser's state
    speed = num_tokens(batch) / median(durations(step, model.device, seconds))
    model.train(was_training)
    return speed


def decode_speed(
    model: PreTrainedModel, batch: Mapping[str, Any], seconds: float, *, sequences: int = 1
) -> DecodeSpeed | None:
    """Measure how fast tokens are written greedily with a cache.

    Args:
        model: The model, in evaluation mode.
        batch: Its first examples are what to read before.
        seconds: How long to measure, at least one generation of up to `MOST_STEPS` tokens.
        sequences: How many examples to continue at once; all are as long as the first.

    Returns:
        The speed; None where the model cannot generate.
    """
    require_at_least(1, sequences=sequences)
    if not model.can_generate() or not all(quirk.generates for quirk in active_quirks(model.config)):
        return None
    real = batch["attention_mask"][0].bool() if "attention_mask" in batch else slice(None)
    prompt = batch["input_ids"][:sequences, real]
    is_decoder = not model.config.is_encoder_decoder
    room = (getattr(model.config, "max_position_embeddings", None) or MOST_STEPS) - 1
    if is_decoder:
        prompt = prompt[:, : max(1, room - MOST_STEPS)]
        room -= prompt.shape[1]
    steps = min(MOST_STEPS, room)
    if steps < FEWEST_STEPS:
        return None
    clock = Clock()
    began = time.perf_counter()
    write(model, prompt, FEWEST_STEPS, Clock())
    while not clock.gaps or time.perf_counter() - began < seconds:
        write(model, prompt, steps, clock)
    cuts = quantiles(clock.gaps, n=20)
    return DecodeSpeed(len(prompt) * len(clock.gaps) / sum(clock.gaps), median(clock.gaps), cuts[-1])


def write(model: PreTrainedModel, prompt: Tensor, steps: int, clock: Clock) -> None:
    """Generate `steps` tokens after prompts, (batch_size, seq_len); the clock sees every one."""
    length = {"max_new_tokens": steps, "min_new_tokens": steps, "max_length": None, "min_length": None}
    model.generate(
        prompt, attention_mask=torch.ones_like(prompt), streamer=clock, do_sample=False, num_beams=1, **length
    )


class Clock(BaseStreamer):
    """Takes the seconds from one generated token to the next."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._last: float | None = None
        self._has_prompt = False

    def put(self, value: Tensor) -> None:
        """See a token; what comes first is the prompt, and then the token that reading it has made."""
        now = time.perf_counter()
        if self._last is not None:
            self.gaps.append(now - self._last)
        if self._has_prompt:
            self._last = now
        self._has_prompt = True

    def end(self) -> None:
        self._last, self._has_prompt = None, False


def num_tokens(batch: Mapping[str, Tensor]) -> int:
    mask = batch.get("attention_mask")
    return batch["input_ids"].numel() if mask is None else int(mask.sum())
