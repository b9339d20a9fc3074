"""Captured decode steps: of steps that are alike one is captured, and replayed from then on (as CUDA graphs are)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, wraps
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from transformers import PreTrainedModel
from transformers.utils import logging

from .decode_step import DecodeStep
from .graph_capture import SHORTEST, CapturedGraph, Program, compile_graph
from .guards import Guards, can_be_captured
from .prepacked_linear import PrepackedWeights, Prepacking, prepacking_of
from .switches import current

logger = logging.get_logger(__name__)

Forward = TypeVar("Forward", bound=Callable[..., Any])

CAPTURE_AFTER = 400
"""After how many steps of a kind one is captured, which takes about as long as so many save: at worst as much is lost
as might have been gained. Measured with six layers of width 512 on a Xeon."""

PREPACK_AFTER = 8
"""After how many steps of a generation weights are prepacked for the rest of them."""

CLOSE = 1e-5
"""How far logits of a replayed step may be from the forward's, relative to the largest: rounding."""


@dataclass
class CapturedSteps:
    """Captured decode steps of one model.

    Attributes:
        guards: What the model's forward depended on when they were captured.
        counts: How many steps of each kind the model itself has done.
        replays: How many steps were replayed.
        steps: What takes the place of each kind; None where it cannot be captured.
        prepackings: How weights are prepacked, by kind and mode; None where that would not make steps faster.
    """

    guards: Guards
    counts: Counter[Any] = field(default_factory=Counter)
    replays: int = 0
    steps: dict[Any, CapturedStep | None] = field(default_factory=dict)
    prepackings: dict[Any, Prepacking | None] = field(default_factory=dict)


@dataclass(frozen=True)
class CapturedStep:
    """A captured decode step, which takes the place of all of its kind.

    Attributes:
        program: The same as a Python function.
        output: The class of the forward's output.
    """

    capture: CapturedGraph
    program: Program
    output: type[Any]

    def replay(self, step: DecodeStep, weights: PrepackedWeights | None = None) -> Any:
        """Do a decode step of the captured kind, and extend its cache.

        Returns:
            What the forward would return; None if it has to be asked, be it for an error.
        """
        lengths = step.lengths.values()
        if not self.capture.fits(*lengths):
            return None
        program, prepacked = (self.program, ()) if weights is None else (weights.program, weights.tensors)
        try:
            logits, *states = program(*step.inputs, *lengths, *self.capture.constants, *prepacked)
        except (IndexError, RuntimeError):  # of a token or a position that there is not: the forward says it better
            return None
        step.advance(states)
        return self.output(logits=logits, past_key_values=step.cache)


class StepReplayer:
    """Replays decode steps during one call of `generate`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.modes = current()
        self.drops_masks = model.drops_masks
        self.counts: Counter[Any] = Counter()
        self.prepacked: dict[Any, PrepackedWeights | None] = {}

    @cached_property
    def captured(self) -> CapturedSteps | None:
        """The model's captured steps, looked up at the first decode step: `generate` itself may change the model."""
        return captured_steps_of(self.model) if self.modes.graph_capture != "never" else None

    def forward(self, forward: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Do a forward, by a captured step where there is one."""
        if is_observed() or (captured := self.captured) is None:
            return forward(**arguments)
        if (step := DecodeStep.of(arguments, drops_masks=self.drops_masks)) is None:
            return forward(**arguments)
        kind = step.kind
        self.counts[kind] += 1
        if (known := captured.steps.get(kind)) is not None:
            if not captured.guards.hold():
                return forward(**arguments)
            output = known.replay(step, self.prepacked_for(captured, step, known))
            if output is None:
                return forward(**arguments)
            captured.replays += 1
            return output
        output = forward(**arguments)
        captured.counts[kind] += 1
        wanted = self.modes.graph_capture == "always" or captured.counts[kind] >= CAPTURE_AFTER
        can = kind not in captured.steps and min(step.lengths.values()) >= SHORTEST
        if wanted and can and captured.guards.hold() and _capturing.acquire(blocking=False):
            try:
                captured.steps[kind] = capture_step(forward, step, output)
            finally:
                _capturing.release()
        return output

    def prepacked_for(self, captured: CapturedSteps, step: DecodeStep, known: CapturedStep) -> PrepackedWeights | None:
        """Prepack the weights of a kind of step, once in a generation, as they may have other values in the next.

        Args:
            known: The captured step of its kind.

        Returns:
            None as long as it is not known that they pay, and from when a weight is written to.
        """
        kind, mode = step.kind, self.modes.prepacked_weights
        if mode == "never" or (mode == "auto" and self.counts[kind] < PREPACK_AFTER):
            return None
        if kind not in self.prepacked:
            prepackings, capture = captured.prepackings, known.capture
            is_new = (kind, mode) not in prepackings
            prepacking = prepacking_of(capture, everywhere=mode == "always") if is_new else prepackings[kind, mode]
            weights = None if prepacking is None else prepacking.prepack(capture.constants)
            if is_new and weights and not agree(known.replay(step), known.replay(step, weights)):
                prepacking = weights = None
            prepackings[kind, mode], self.prepacked[kind] = prepacking, weights
        weights = self.prepacked[kind]
        if weights is not None and not weights.is_current():
            weights = self.prepacked[kind] = None
        return weights


def capture_step(forward: Callable[..., Any], step: DecodeStep, output: Any) -> CapturedStep | None:
    """Capture a decode step, and see whether its replay comes out as the forward did.

    Args:
        step: The step as it was before the forward.

    Returns:
        None where it cannot be captured.
    """
    try:
        capture = step.capture(forward)
        captured = CapturedStep(capture, compile_graph(capture.graph), type(output))
        again = captured.replay(step)
    except Exception as error:  # of tracing: there are as many kinds as things that a variant's code can do
        logger.info("a decode step cannot be captured: %s", error)
        return None
    return captured if agree(output, again) else None


def agree(output: Any, other: Any) -> bool:
    """Whether two outputs with logits are the same but for rounding; not where either is None."""
    if output is None or other is None or output.logits.shape != other.logits.shape:
        return False
    return bool((other.logits - output.logits).abs().max() <= CLOSE * output.logits.abs().max())


_captured: WeakKeyDictionary[nn.Module, CapturedSteps] = WeakKeyDictionary()


def captured_steps_of(model: PreTrainedModel) -> CapturedSteps | None:
    """Find the captured steps of a model as it is now; those of what it was before are forgotten.

    Returns:
        Captured steps, of which there may be none yet; None where there cannot be any.
    """
    if not can_be_captured(model):
        return None
    guards, known = Guards(model), _captured.get(model)
    if known is None or known.guards != guards:
        known = _captured[model] = CapturedSteps(guards)
    known.guards = guards
    return known


def is_observed() -> bool:
    """Whether anybody wants to see more of a forward than its output: gradients, hooks, modes of PyTorch."""
    return (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack())
        or nn.modules.module._has_any_global_hook()
    )


_capturing = Lock()
"""One thread captures at a time, others with a later step: PyTorch notes for the process that modes are active."""

_replayer: ContextVar[StepReplayer | None] = ContextVar("replayer", default=None)


@contextmanager
def replayed_steps(model: PreTrainedModel) -> Iterator[None]:
    """Capture and replay decode steps of a model for a while, in this thread."""
    token = _replayer.set(StepReplayer(model))
    try:
        yield
    finally:
        _replayer.reset(token)


def with_captured_steps(forward: Forward) -> Forward:
    """Let captured steps take the place of a model's forward where it is a decode step."""

    @wraps(forward)
    def step_forward(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        replayer = None if torch.compiler.is_compiling() else _replayer.get()
        if replayer is None or replayer.model is not self or args or kwargs.get("past_key_values") is None:
            return forward(self, *args, **kwargs)
        return replayer.forward(lambda **arguments: forward(self, **arguments), kwargs)

    return cast(Forward, step_forward)
