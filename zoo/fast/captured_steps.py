"""Captured decode steps: one step of each kind is captured, and later ones replay it (like CUDA graphs)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, wraps
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

from .graph_capture import SHORTEST, CapturedGraph, Program, capture, compile_graph
from .guards import Guards, can_be_captured
from .preallocated_cache import CACHE_NAME, GrowingLayer, SourceLayer, self_attention_cache
from .prepacked_linear import PrepackedLayers, PrepackedWeights, Prepacking, prepacking_of, replacing_methods
from .switches import current

DIMENSIONS: dict[str, tuple[int, str] | None] = {
    "input_ids": None,
    "position_ids": None,
    "attention_mask": (1, "read"),
    "decoder_input_ids": None,
    "decoder_position_ids": None,
    "decoder_attention_mask": (1, "read"),
    "encoder_outputs": (1, "source"),
}
"""Tensor inputs of a decoder's step, with the dimension that is a length, and its name; of an encoder's outputs the
hidden states. With an encoder, `attention_mask` is the source's."""

FLAGS = ("use_cache", "logits_to_keep", "return_dict")
"""Arguments of a step that are no tensors; a step with any other argument is not captured."""


@dataclass(frozen=True)
class DecodeStep:
    """A decode step: one token per row, and the cache."""

    tensors: dict[str, Tensor]
    flags: dict[str, Any]
    cache: Cache
    lengths: dict[str, int]  # Number of cached positions, capacity of the cache, and lengths of the masks

    @classmethod
    def of(cls, arguments: dict[str, Any], *, drops_masks: bool) -> DecodeStep | None:
        """A step of these arguments, None if it is no decode step; `drops_masks` drops those without padding."""
        cache = arguments[CACHE_NAME]
        tensors: dict[str, Tensor] = {}
        flags: dict[str, Any] = {}
        for name, value in arguments.items():
            if value is None or value is cache:
                continue
            if name in FLAGS and isinstance(value, (bool, int)):
                flags[name] = value
                continue
            if name == "encoder_outputs" and isinstance(value, BaseModelOutput):
                value = value.last_hidden_state
            if name not in DIMENSIONS or not isinstance(value, Tensor) or value.ndim not in (2, 3):
                return None
            if not (drops_masks and name.endswith("attention_mask") and bool(value.all())):
                tensors[name] = value
        ids = tensors.get("input_ids", tensors.get("decoder_input_ids"))
        if ids is None or ids.shape[1] != 1:
            return None
        step = cls(tensors, flags, cache, {"seen": self_attention_cache(cache).get_seq_length()})
        return step if step.makes_room(len(ids)) and step.measures() else None

    def makes_room(self, rows: int) -> bool:
        """Reserve room for one more position; False if the cache cannot be written in place or has other rows."""
        seen = self.lengths["seen"]
        if not seen or not all(type(layer) is SourceLayer and layer.is_initialized for layer in self.source_layers):
            return False
        for layer in self.own_layers:
            if type(layer) is not GrowingLayer or not layer.is_initialized:
                return False
            if layer.keys.shape[0] != rows or layer.keys.shape[2] != seen:
                return False
            layer.reserve(seen + 1)
        return True

    def measures(self) -> bool:
        for tensor, dimension in zip(self.inputs, self.dimensions, strict=True):
            if dimension is not None:
                place, name = dimension
                if self.lengths.setdefault(name, tensor.shape[place]) != tensor.shape[place]:
                    return False
        return True

    @property
    def dimensions(self) -> list[tuple[int, str] | None]:
        """Dimension and name of the length of each input."""
        sources = self.source_layers
        named = [(1, "source") if sources and name == "attention_mask" else DIMENSIONS[name] for name in self.tensors]
        return [*named, *[(2, "room")] * (2 * len(self.own_layers)), *[(2, "source")] * (2 * len(sources))]

    @property
    def own_layers(self) -> list[GrowingLayer]:
        return cast(list[GrowingLayer], self_attention_cache(self.cache).layers)

    @property
    def source_layers(self) -> list[SourceLayer]:
        is_pair = isinstance(self.cache, EncoderDecoderCache)
        return cast(list[SourceLayer], self.cache.cross_attention_cache.layers if is_pair else [])

    @property
    def rows(self) -> int:
        return len(next(iter(self.tensors.values())))

    @property
    def kind(self) -> tuple[Any, ...]:
        """Key of all steps that one captured step can replace: everything but lengths and values."""
        shapes = tuple(
            (name, tensor.dtype, tensor.ndim, tensor.shape[0], tensor.shape[2:])
            for name, tensor in self.tensors.items()
        )
        beams = tuple(layer.num_beams for layer in self.source_layers)
        return shapes, tuple(self.flags.items()), tuple(layer.keys.dtype for layer in self.own_layers), beams

    @property
    def memory(self) -> list[Tensor]:
        """Buffers of keys and values of self-attention, then those of the sources."""
        own = [room for layer in self.own_layers for room in layer.rooms]
        return own + [states for layer in self.source_layers for states in (layer.keys, layer.values)]

    @property
    def inputs(self) -> list[Tensor]:
        """Everything that may differ in another step of this kind."""
        return [*self.tensors.values(), *self.memory]

    def capture(self, forward: Callable[..., Any]) -> CapturedGraph:
        """Capture a forward on arguments like these: inputs to logits and all keys and values of self-attention."""

        def step(*inputs: Any) -> tuple[Tensor, ...]:
            arguments = dict(zip(self.tensors, inputs, strict=False))
            if "encoder_outputs" in arguments:
                arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=arguments["encoder_outputs"])
            first, last = len(self.tensors), len(inputs) - len(self.lengths)
            cache = self.with_memory(inputs[first:last], seen=inputs[last])
            logits = forward(**arguments, **self.flags, **{CACHE_NAME: cache}).logits
            layers = self_attention_cache(cache).layers
            return (logits, *(states for layer in layers for states in (layer.keys, layer.values)))

        return capture(step, self.inputs, self.dimensions, self.lengths)

    def with_memory(self, memory: Sequence[Tensor], seen: int) -> Cache:
        """A copy of the cache on other tensors."""
        own = [copy.copy(layer) for layer in self.own_layers]
        sources = [copy.copy(layer) for layer in self.source_layers]
        pairs = list(zip(memory[::2], memory[1::2], strict=True))
        for layer, rooms in zip(own, pairs, strict=False):
            layer.rooms = rooms
            layer.show(seen)
        for source, states in zip(sources, pairs[len(own) :], strict=True):
            source.keys, source.values = states
        cache = copy.copy(self.cache)
        if isinstance(cache, EncoderDecoderCache):
            cache.self_attention_cache = copy.copy(cache.self_attention_cache)
            cache.cross_attention_cache = copy.copy(cache.cross_attention_cache)
            cache.cross_attention_cache.layers = sources
        self_attention_cache(cache).layers = own
        return cache

    def advance(self, states: Sequence[Tensor]) -> None:
        """Advance the cache by one position; `states` are the buffers of all keys and values of self-attention."""
        for place, layer in enumerate(self.own_layers):
            layer.keys, layer.values = layer.shown = (states[2 * place], states[2 * place + 1])


logger = logging.get_logger(__name__)

Forward = TypeVar("Forward", bound=Callable[..., Any])

CAPTURE_AFTER = 400
"""Steps of a kind before it is captured. Capturing takes about as long as this many replays save, so at worst the time
lost equals the time that could have been saved. Measured with six layers of width 512 on a Xeon."""

PREPACK_AFTER = 8  # Steps of a generation before weights are prepacked for the rest of it
CLOSE = 1e-5  # Largest relative difference between the logits of a replayed step and the forward's: rounding


@dataclass
class CapturedSteps:
    """Captured decode steps of one model."""

    guards: Guards  # State that the model's forward depended on at capture
    counts: Counter[Any] = field(default_factory=Counter)  # Number of steps of each kind that the model itself has run
    replays: int = 0
    # Captured step of each kind; None if it cannot be captured
    steps: dict[Any, CapturedStep | None] = field(default_factory=dict)
    # How weights are prepacked, by kind and mode; None if that makes steps no faster
    prepackings: dict[Any, Prepacking | None] = field(default_factory=dict)
    is_preparing: bool = False  # Whether `prepare_for_generation` runs
    prepared: Any = None  # Kind and mode that were prepared last
    # Its prepacked weights, for the first steps of later generations, and hashes of what they are of
    kept: tuple[PrepackedWeights, list[int]] | None = None


@dataclass(frozen=True)
class CapturedStep:
    """A captured decode step, which replaces all of its kind."""

    capture: CapturedGraph
    program: Program  # The same as a Python function
    output: type[Any]  # The class of the forward's output

    def replay(self, step: DecodeStep, weights: PrepackedWeights | None = None) -> Any:
        """Run a decode step of the captured kind, and extend its cache; None if the forward has to run."""
        lengths = step.lengths.values()
        if not self.capture.fits(*lengths):
            return None
        program, prepacked = (self.program, ()) if weights is None else (weights.program, weights.tensors)
        try:
            logits, *states = program(*step.inputs, *lengths, *self.capture.constants, *prepacked)
        except (IndexError, RuntimeError):  # a token or position out of range: the forward raises the better error
            return None
        step.advance(states)
        return self.output(**{"logits": logits, CACHE_NAME: step.cache})


class StepReplayer:
    """Replays decode steps during one call of `generate`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.modes = current()
        self.drops_masks = model.drops_masks
        self.counts: Counter[Any] = Counter()
        self.prepacked: dict[Any, PrepackedWeights | None] = {}
        self.layers: dict[Any, PrepackedLayers | None] = {}

    @cached_property
    def captured(self) -> CapturedSteps | None:
        """The model's captured steps, looked up at the first decode step: `generate` may change the model."""
        return captured_steps_of(self.model) if self.modes.graph_capture != "never" else None

    def forward(self, forward: Callable[..., Any], arguments: dict[str, Any]) -> Any:
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
        with self.prepacked_layers(step):
            output = forward(**arguments)
        captured.counts[kind] += 1
        wanted = self.modes.graph_capture == "always" or captured.counts[kind] >= CAPTURE_AFTER
        can = kind not in captured.steps and min(step.lengths.values()) >= SHORTEST
        if wanted and can and captured.guards.hold() and _capturing.acquire(blocking=False):
            try:
                captured.steps[kind] = capture_step(forward, step, output)
                self.layers.pop(kind, None)
            finally:
                _capturing.release()
        return output

    def prepacks(self, kind: Any) -> bool:
        """Whether enough steps of a kind were run for prepacked weights to pay."""
        mode = self.modes.prepacked_weights
        return mode == "always" or (mode == "auto" and self.counts[kind] >= PREPACK_AFTER)

    def prepacked_layers(self, step: DecodeStep) -> AbstractContextManager[None]:
        """A context in which the model's linear layers run on prepacked weights, once they pay, until a write."""
        kind = step.kind
        if self.prepacks(kind) and kind not in self.layers:
            everywhere = self.modes.prepacked_weights == "always"
            self.layers[kind] = PrepackedLayers(self.model, step.rows, everywhere=everywhere)
        layers = self.layers.get(kind)
        if layers is not None and not layers.are_current():
            layers = self.layers[kind] = None
        return nullcontext() if layers is None else layers.installed()

    def prepacked_for(self, captured: CapturedSteps, step: DecodeStep, known: CapturedStep) -> PrepackedWeights | None:
        """Prepacked weights for a kind of step, made once per generation; None until they pay, or after a write."""
        kind, mode = step.kind, self.modes.prepacked_weights
        if self.counts[kind] == 1 and captured.prepared == (kind, mode) and captured.kept is not None:
            kept, before = captured.kept
            if kept.sources.digest() == before:
                self.prepacked[kind] = kept
            else:
                captured.kept = None
        if kind not in self.prepacked and not self.prepacks(kind):
            return None
        if kind not in self.prepacked:
            prepackings, capture = captured.prepackings, known.capture
            is_new = (kind, mode) not in prepackings
            prepacking = prepacking_of(capture, everywhere=mode == "always") if is_new else prepackings[kind, mode]
            weights = None if prepacking is None else prepacking.prepack(capture.constants)
            if is_new and weights and not agree(known.replay(step), known.replay(step, weights)):
                prepacking = weights = None
            prepackings[kind, mode], self.prepacked[kind] = prepacking, weights
            if captured.is_preparing:
                captured.prepared = (kind, mode)
            if captured.prepared == (kind, mode):
                digest = None if weights is None else weights.sources.digest()
                captured.kept = None if weights is None or digest is None else (weights, digest)
        weights = self.prepacked[kind]
        if weights is not None and not weights.sources.are_current():
            weights = self.prepacked[kind] = None
        return weights


def capture_step(forward: Callable[..., Any], step: DecodeStep, output: Any) -> CapturedStep | None:
    """Capture a decode step, and check its replay against the forward; None if it cannot be captured."""
    try:
        capture = step.capture(forward)
        captured = CapturedStep(capture, compile_graph(capture.graph), type(output))
        again = captured.replay(step)
    except Exception as error:  # tracing may raise anything: a variant's code is arbitrary
        logger.info("a decode step cannot be captured: %s", error)
        return None
    return captured if agree(output, again) else None


def agree(output: Any, other: Any) -> bool:
    """Whether two outputs with logits are equal up to rounding; False if either is None."""
    if output is None or other is None or output.logits.shape != other.logits.shape:
        return False
    return bool((other.logits - output.logits).abs().max() <= CLOSE * output.logits.abs().max())


_captured: WeakKeyDictionary[nn.Module, CapturedSteps] = WeakKeyDictionary()


def captured_steps_of(model: PreTrainedModel) -> CapturedSteps | None:
    """Captured steps of a model in its present state, dropping earlier ones; None if it cannot be captured."""
    with replacing_methods:
        guards = Guards(model) if can_be_captured(model) else None
    if guards is None:
        return None
    known = _captured.get(model)
    if known is None or known.guards != guards:
        known = _captured[model] = CapturedSteps(guards)
    known.guards = guards
    return known


def is_observed() -> bool:
    """Whether more of a forward than its output is observed: gradients, hooks, modes of PyTorch."""
    return (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack())
        or nn.modules.module._has_any_global_hook()
    )


_capturing = Lock()
"""One thread captures at a time, other threads at a later step: PyTorch's flag for active modes is global."""

_replayer: ContextVar[StepReplayer | None] = ContextVar("replayer", default=None)


@contextmanager
def replayed_steps(model: PreTrainedModel) -> Iterator[None]:
    """Capture and replay decode steps of a model in this context and thread."""
    token = _replayer.set(StepReplayer(model))
    try:
        yield
    finally:
        _replayer.reset(token)


def with_captured_steps(forward: Forward) -> Forward:
    """Replace the model's forward by captured steps during decoding."""

    @wraps(forward)
    def step_forward(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        replayer = None if torch.compiler.is_compiling() else _replayer.get()
        if replayer is None or replayer.model is not self or args or kwargs.get(CACHE_NAME) is None:
            return forward(self, *args, **kwargs)
        return replayer.forward(lambda **arguments: forward(self, **arguments), kwargs)

    return cast(Forward, step_forward)
