"""Base class of symmetries (reparametrisations that keep the function), with the selection of weights."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.registry import Registry, Task

State = dict[str, Tensor]  # Weights by name
LM_TASKS = frozenset({Task.CAUSAL_LM, Task.MASKED_LM, Task.SEQ2SEQ_LM})  # Tasks with an output projection as their head

DENSE_PARTS = ("mlp", "gated")  # Feed-forward parts with no weights but those of two or three projections

PLAIN_ATTENTIONS = ("multi-head", "masked-rows-uniform", "masked-rows-nan")  # Parts with four projections of the stream

QUERY_KEY_VALUE = r"\.(self_attn|cross_attn)\.[qkv]_proj\.weight$"
QUERY = r"\.(self_attn|cross_attn)\.q_proj\.(weight|bias)$"
FEED_FORWARD_IN = r"\.mlp\.(up|gate)_proj\.weight$"
WRITERS = r"\.(o_proj|down_proj)\.(weight|bias)$"
LAYER_NORMS = r"\.norm_(in|branch|out)\.(weight|bias)$"
EMBEDDING_NORM = r"\.embedding_norm\.(weight|bias)$"
FINAL_NORM = r"^model(\.encoder|\.decoder)?\.norm\.(weight|bias)$"
NORM_WEIGHTS = r"(?<!self_attn\.)norm(_in|_branch|_out)?\.weight$"
EMBEDDINGS = r"\.embed_tokens\.weight$"


class Symmetry(ABC):
    """A change of one setting that a change of weights makes up for.

    Attributes may be in the header of a subclass as well as in its body; one with a name of its own is registered.
    """

    name: str  # Name in reports
    field: str  # The setting that it changes
    rank: int = 0  # Settings are changed in this order, as some symmetries rely on what others have done
    summary: str  # One line for reports
    half_precision = True  # Whether the new weights can be expected to survive 16-bit floats
    unties = False  # Whether it changes the embedding or the output projection, so that they cannot stay tied

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__()
        for attribute, value in attributes.items():
            setattr(cls, attribute, value)
        if "name" in vars(cls):
            SYMMETRIES.register(cls.name, cls(), module=cls.__module__)

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """Whether `field` may become the wanted value at equal outputs of the task; other settings stay."""
        return True

    def settings(self, config: ZooConfig, wanted: Any, task: str) -> dict[str, Any] | None:
        """Settings that change when `field` becomes the wanted value, if it may."""
        return {self.field: wanted} if self.fits(config, wanted, task) else None

    @abstractmethod
    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        """Every weight, for `field` with the wanted value; `config` describes the given weights."""


@dataclass(frozen=True)
class Step:
    """One symmetry at work."""

    symmetry: Symmetry
    config: ZooConfig  # The settings before it
    wanted: Any  # The value that its setting gets

    def __call__(self, state: State) -> State:
        return self.symmetry.weights(state, self.config, self.wanted)


SYMMETRIES: Registry[Symmetry] = Registry("symmetry", built_in="zoo.converters.symmetries", definition=type)
"""All symmetries by name. Plugins may add some."""


def change(state: State, patterns: str | Iterable[str], function: Callable[[Tensor], Tensor]) -> State:
    """Change the weights with matching names, leave the others."""
    joined = re.compile("|".join([patterns] if isinstance(patterns, str) else patterns))
    return {name: function(tensor) if joined.search(name) else tensor for name, tensor in state.items()}


def change_by_stack(
    state: State, pattern: str, config: ZooConfig, function: Callable[[ZooConfig, Tensor], Tensor]
) -> State:
    """The same, by the configuration of the stack that a weight is of."""
    for prefix, stack in stacks(config).items():
        state = change(state, f"^{re.escape(prefix)}.*{pattern}", partial(function, stack))
    return state


def scale(factor: float | Tensor) -> Callable[[Tensor], Tensor]:
    """Make a function that multiplies by a number, or every row by its own, (rows,)."""

    def times(tensor: Tensor) -> Tensor:
        if isinstance(factor, Tensor):
            return tensor * factor.to(tensor.dtype).reshape(-1, *[1] * (tensor.dim() - 1))
        return tensor * factor

    return times


def pad(wanted: int, value: float = 0.0, dim: int = 0) -> Callable[[Tensor], Tensor]:
    """Make a function that appends rows, or columns."""

    def append(tensor: Tensor) -> Tensor:
        shape = list(tensor.shape)
        shape[dim] = wanted - shape[dim]
        return torch.cat([tensor, tensor.new_full(shape, value)], dim=dim)

    return append


def has_plain_layers(config: ZooConfig) -> bool:
    """Whether the weights in layers that read or write the residual stream are those of the patterns above alone."""
    plain = config.attention in PLAIN_ATTENTIONS and config.mixer_layer_type is None
    return plain and config.feed_forward in DENSE_PARTS and config.residual == "plain"


def layer_readers(cross: bool = True) -> list[str]:
    """The weights in layers with columns for the channels of the residual stream."""
    if cross:
        return [QUERY_KEY_VALUE, FEED_FORWARD_IN]
    return [r"\.self_attn\.[qkv]_proj\.weight$", r"\.cross_attn\.q_proj\.weight$", FEED_FORWARD_IN]


def head_readers(state: State) -> list[str]:
    """The weights after the last layer with columns for the channels of the residual stream."""
    pairs = (("transform.dense.weight", "lm_head.weight"), ("pooler.dense.weight", "classifier.weight"))
    return [f"^{re.escape(first if first in state else last)}$" for first, last in pairs]


def tables(config: ZooConfig) -> str:
    """The tables of vectors that are summed before the first layer."""
    positions = "|position" if config.position.startswith("learned") else ""
    return rf"\.(embed_tokens|token_types{positions})\.weight$"


def stacks(config: ZooConfig) -> Mapping[str, ZooConfig]:
    """The configuration of each stack, by the beginning of its weights' names."""
    if config.stack == "encoder-decoder":
        return {"model.encoder.": config, "model.decoder.": config.decoder_config()}
    return {"model.": config}


def settled(config: ZooConfig, settings: Mapping[str, Any]) -> ZooConfig:
    changed = copy.deepcopy(config)
    for field, value in settings.items():
        setattr(changed, field, value)
    return changed
