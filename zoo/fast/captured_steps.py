"""Generation by recorded steps: those that are alike are recorded once, and replayed from then on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from transformers import PreTrainedModel
from transformers.utils import logging

from .decode_step import Step
from .graph_capture import SHORTEST, Program, Recording, written_down
from .prepacked_linear import Packing, packing_of
from .switches import current

logger = logging.get_logger(__name__)

Forward = TypeVar("Forward", bound=Callable[..., Any])

Packed = tuple[Program, tuple[torch.Tensor, ...]]

RECORD_AFTER = 400
"""After how many steps of a kind it is recorded, which takes about as long as so many save: at worst as much is lost as
might have been gained. Measured with six layers of width 512 on a Xeon."""

PACK_AFTER = 8
"""After how many steps of a generation weights are laid out for the rest of them."""

CLOSE = 1e-5
"""How far logits of a replayed step may be from the forward's, relative to the largest: rounding."""


@dataclass
class Recordings:
    """What is known of the steps of one model.

    Attributes:
        fingerprint: Of the model as it was when they were recorded.
        steps: How many there were of each kind.
        recorded: What takes the place of each kind; None where there cannot be anything.
        packings: The same with laid out weights, by kind and mode; None where they would not make it faster.
    """

    fingerprint: Any
    steps: Counter[Any] = field(default_factory=Counter)
    recorded: dict[Any, Replay | None] = field(default_factory=dict)
    packings: dict[Any, Packing | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """What takes the place of steps of one kind.

    Attributes:
        recording: Of one of them.
        program: It, written down.
        output: The kind of output that a forward gives.
    """

    recording: Recording
    program: Program
    output: type[Any]

    def run(self, step: Step, packed: Packed | None = None) -> Any:
        """Do a step.

        Args:
            step: Of the kind that was recorded. Its cache is extended.
            packed: Laid out weights, and the program that reads them.

        Returns:
            What the forward would; None if it has to be asked, be it for an error.
        """
        lengths = step.lengths.values()
        if not self.recording.fits(*lengths):
            return None
        program, weights = (self.program, ()) if packed is None else packed
        try:
            logits, *states = program(*step.inputs, *lengths, *self.recording.constants, *weights)
        except (IndexError, RuntimeError):  # of a token or a position that there is not: the forward says it better
            return None
        step.advance(states)
        return self.output(logits=logits, past_key_values=step.cache)


class Generation:
    """One call of `generate`.

    Args:
        model: Whose.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.modes = current()
        records = self.modes.recorded_steps != "never" and can_be_recorded(model)
        self.drops_masks = model.drops_masks
        self.recordings = recordings_of(model) if records else None
        self.steps: Counter[Any] = Counter()
        self.packed: dict[Any, Packed | None] = {}

    def forward(self, forward: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Do a forward, by a recording if it is a step of which there is one.

        Args:
            forward: The model's.
            arguments: All of its arguments, by name.

        Returns:
            Its output.
        """
        if self.recordings is None or is_watched():
            return forward(**arguments)
        if (step := Step.of(arguments, drops_masks=self.drops_masks)) is None:
            return forward(**arguments)
        kind = step.kind
        self.steps[kind] += 1
        if (replay := self.recordings.recorded.get(kind)) is not None:
            output = replay.run(step, self.packed_for(kind, replay, step))
            return forward(**arguments) if output is None else output
        output = forward(**arguments)
        self.recordings.steps[kind] += 1
        wanted = self.modes.recorded_steps == "always" or self.recordings.steps[kind] >= RECORD_AFTER
        if wanted and kind not in self.recordings.recorded and min(step.lengths.values()) >= SHORTEST:
            self.record(kind, forward, step, output)
        return output

    def record(self, kind: Any, forward: Callable[..., Any], step: Step, output: Any) -> None:
        """Record a step, unless another thread is recording one: it is tried again with the next step then.

        Args:
            kind: Of steps.
            forward: The model's.
            step: As it was before the forward.
            output: The forward's.
        """
        if self.recordings is not None and _tracing.acquire(blocking=False):
            try:
                self.recordings.recorded[kind] = replay_of(forward, step, output)
            finally:
                _tracing.release()

    def packed_for(self, kind: Any, replay: Replay, step: Step) -> Packed | None:
        """Lay weights out for steps of a kind, once in a generation, as they may be other ones in the next.

        Args:
            kind: Of steps.
            replay: What takes their place.
            step: The next one.

        Returns:
            None as long as it is not known that they pay.
        """
        mode = self.modes.packed_weights
        if mode == "never" or self.recordings is None or (mode == "auto" and self.steps[kind] < PACK_AFTER):
            return None
        if kind not in self.packed:
            packings, recording = self.recordings.packings, replay.recording
            is_new = (kind, mode) not in packings
            packing = packing_of(recording, everywhere=mode == "always") if is_new else packings[kind, mode]
            packed = None if packing is None else (packing.program, packing.pack(recording.constants))
            if is_new and packed and not agree(replay.run(step), replay.run(step, packed)):
                packing = packed = None
            packings[kind, mode], self.packed[kind] = packing, packed
        return self.packed[kind]


def replay_of(forward: Callable[..., Any], step: Step, output: Any) -> Replay | None:
    """Record a step, and see whether it comes out as the forward had it.

    Args:
        forward: The model's.
        step: As it was before the forward.
        output: The forward's.

    Returns:
        None where it cannot be recorded.
    """
    try:
        recording = step.record(forward)
        replay = Replay(recording, written_down(recording.graph), type(output))
        again = replay.run(step)
    except Exception as error:  # of tracing: there are as many kinds as things that a variant's code can do
        logger.info("a step of generation cannot be recorded: %s", error)
        return None
    return replay if agree(output, again) else None


def agree(output: Any, other: Any) -> bool:
    """Whether two outputs are the same but for rounding.

    Args:
        output: With logits; or None.
        other: Likewise.

    Returns:
        False also where there is none.
    """
    if output is None or other is None or output.logits.shape != other.logits.shape:
        return False
    return bool((other.logits - output.logits).abs().max() <= CLOSE * output.logits.abs().max())


_recordings: WeakKeyDictionary[nn.Module, Recordings] = WeakKeyDictionary()


def recordings_of(model: PreTrainedModel) -> Recordings:
    """Find what is known of a model's steps, unless the model has changed since.

    Args:
        model: Any model of the zoo.

    Returns:
        Known recordings, or none yet.
    """
    fingerprint = fingerprint_of(model)
    known = _recordings.get(model)
    if known is None or known.fingerprint != fingerprint:
        known = _recordings[model] = Recordings(fingerprint)
    return known


def fingerprint_of(model: nn.Module) -> Any:
    """What recordings depend on, values of parameters not among it: recordings hold the very same parameters.

    Args:
        model: Any model of the zoo.

    Returns:
        Something to compare.
    """
    tensors = [*model.parameters(), *model.buffers()]
    configs = [str(vars(module.config)) for module in model.modules() if isinstance(module, PreTrainedModel)]
    return [(id(tensor), tensor.dtype, tensor.shape) for tensor in tensors], configs


def can_be_recorded(model: PreTrainedModel) -> bool:
    """Whether nothing happens in a model's forward but what its classes say, and these are known.

    Args:
        model: Any model of the zoo.

    Returns:
        False on accelerators, in training, where hooks or other libraries have their hands in it, and of parts that
        come with plugins, of which nobody knows what else they do.
    """
    ours = __name__.removesuffix("captured_steps").removesuffix("fast.")  # where code comes with a checkpoint, too
    known = ("torch.nn.", "transformers.activations", ours)
    return model.device.type == "cpu" and not any(
        module.training
        or module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or not type(module).__module__.startswith(known)
        for module in model.modules()
    )


def is_watched() -> bool:
    """Whether anybody wants to see more of a forward than its output: gradients, hooks, modes of PyTorch."""
    return (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or is_in_torch_dispatch_mode()
        or nn.modules.module._has_any_global_hook()
    )


_tracing = Lock()
"""Two tracings at a time mix, and leave PyTorch believing for good that one goes on."""

_generation: ContextVar[Generation | None] = ContextVar("generation", default=None)


@contextmanager
def generation_of(model: PreTrainedModel) -> Iterator[None]:
    """Replay steps of a model for a while.

    Args:
        model: The model that generates.

    Yields:
        Nothing.
    """
    token = _generation.set(Generation(model))
    try:
        yield
    finally:
        _generation.reset(token)


def replayed(forward: Forward) -> Forward:
    """Let a model's forward be replaced by a recording where it is a step of generation.

    Args:
        forward: Of a class.

    Returns:
        With the same signature.
    """

    @wraps(forward)
    def stepwise(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        generation = None if torch.compiler.is_compiling() else _generation.get()
        if generation is None or generation.model is not self or args or kwargs.get("past_key_values") is None:
            return forward(self, *args, **kwargs)
        return generation.forward(lambda **arguments: forward(self, **arguments), kwargs)

    return cast(Forward, stepwise)
