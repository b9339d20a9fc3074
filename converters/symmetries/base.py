"""Base class of symmetries (reparametrisations that keep the function), and routes of them between settings."""

from __future__ import annotations

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling
from zoo.models.fields import ANY, SETTINGS
from zoo.registry import Registry, Task

State = dict[str, Tensor]  # Weights by name
LM_TASKS = frozenset({Task.CAUSAL_LM, Task.MASKED_LM, Task.SEQ2SEQ_LM})  # Tasks with an output projection as their head

DENSE_PARTS = ("mlp", "gated")  # Feed-forward parts with no weights but those of two or three projections
NORM_WEIGHTS = r"(?<!self_attn\.)norm(_in|_branch|_out)?\.weight$"


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
    def append(tensor: Tensor) -> Tensor:
        shape = list(tensor.shape)
        shape[dim] = wanted - shape[dim]
        return torch.cat([tensor, tensor.new_full(shape, value)], dim=dim)

    return append


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


Needs = Mapping[str, Any]
"""Settings that a class expresses, by field: a value, a tuple of values (the preferred first), a function of the
configuration that gives either, or `ANY`. Of a field that is not named it expresses the plain value alone."""


@dataclass(frozen=True)
class Route:
    """The way from a model's settings to those that a class has."""

    steps: tuple[Step, ...]  # Symmetries, in the order in which they apply
    config: ZooConfig  # The settings at the end
    obstacles: tuple[str, ...]  # Differences that no symmetry removes, a phrase each; the route is open without any

    def __call__(self, state: State) -> State:
        for step in self.steps:
            state = step(state)
        return state


def find_route(config: ZooConfig, needs: Needs, task: str, reasons: Mapping[str, str] | None = None) -> Route:
    """Find symmetries to what a class has that keep a task's output; `reasons` are phrases for fixed fields."""
    current = canonical(config)
    steps: list[Step] = []
    obstacles: list[str] = []
    ranks = {name: math.inf for name, one in SETTINGS.items() if one.read_with}
    ranks |= {found.field: found.rank for found in map(SYMMETRIES.get, SYMMETRIES)}
    for field in sorted(needs, key=lambda field: ranks.get(field, 0)):
        options = admissible(needs[field], current)
        if ANY in options:
            continue
        given = getattr(current, field)
        if any(given == option and isinstance(given, bool) == isinstance(option, bool) for option in options):
            continue
        taken = first_step(current, field, options, task)
        if not taken:
            has = " or ".join(map(repr, options))
            obstacles.append((reasons or {}).get(field) or f"{field}={given!r}, it has {has}")
            continue
        steps.extend(taken)
        last = taken[-1]
        current = settled(last.config, last.symmetry.settings(last.config, last.wanted, task) or {})
    return Route(tuple(steps), current, tuple(obstacles))


def plain_needs(task: str) -> dict[str, Any]:
    """The settings of a plain Transformer, which every class expresses."""
    needs = {name: one.need for name, one in SETTINGS.items() if one.is_computed(task)}
    return {name: need for name, need in needs.items() if need is not ANY}


def first_step(config: ZooConfig, field: str, options: tuple[Any, ...], task: str) -> list[Step]:
    """Find the first symmetry that gives a field one of some values."""
    for wanted in options:
        for name in SYMMETRIES:
            found: Symmetry = SYMMETRIES.get(name)
            if found.field != field or found.settings(config, wanted, task) is None:
                continue
            if found.unties and config.tie_word_embeddings and task in LM_TASKS:
                untie = Step(SYMMETRIES.get("untie-output"), config, False)
                return [untie, Step(found, settled(config, {"tie_word_embeddings": False}), wanted)]
            return [Step(found, config, wanted)]
    return []


def admissible(need: Any, config: ZooConfig) -> tuple[Any, ...]:
    if callable(need):
        need = need(config)
    return need if isinstance(need, tuple) else (need,)


def canonical(config: ZooConfig) -> ZooConfig:
    """Write the usual attention scale as "head-dim", and a window that no layer has as None."""
    parts = stacks(config).values()
    settings: dict[str, Any] = {}
    for word in ("head-dim", "none"):
        if config.attention != "latent" and all(  # "head-dim" is another width there
            attention_scaling(part) == attention_scaling(settled(part, {"attention_scale": word})) for part in parts
        ):
            settings["attention_scale"] = word
            break
    if all(part.window_of_layer(layer) is None for part in parts for layer in range(part.num_hidden_layers)):
        settings["sliding_window"] = None
    return settled(config, settings)
