"""Finds the symmetries that lead from one model's settings to others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling
from zoo.models.fields import ANY, SETTINGS

from .base import LM_TASKS, SYMMETRIES, State, Step, Symmetry, settled, stacks
from .structure import UNTIE_OUTPUT

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
            obstacles.append((reasons or {}).get(field) or phrase(field, given, options))
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
                untie = Step(UNTIE_OUTPUT, config, False)
                return [untie, Step(found, settled(config, {"tie_word_embeddings": False}), wanted)]
            return [Step(found, config, wanted)]
    return []


def admissible(need: Any, config: ZooConfig) -> tuple[Any, ...]:
    """Resolve what a class has."""
    if callable(need):
        need = need(config)
    return need if isinstance(need, tuple) else (need,)


def phrase(field: str, given: Any, options: tuple[Any, ...]) -> str:
    """State that a setting is not among what a class has."""
    return f"{field}={given!r}, it has {' or '.join(repr(option) for option in options)}"


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
