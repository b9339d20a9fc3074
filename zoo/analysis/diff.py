"""In what two variants differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.base.printed import Note, Part, Printed, Table
from zoo.building.builder import config as configure
from zoo.building.builder import skeleton
from zoo.building.weights import is_saved
from zoo.models import Transformer, ZooConfig
from zoo.models.fields import SETTINGS
from zoo.models.transformer import transformer_of
from zoo.registry import VARIANTS, Task, parse_name

from .own_settings import resolve, settings_of

if TYPE_CHECKING:
    from zoo.building.literals import TaskName, VariantName

NOT_IMPLIED = frozenset({"final_norm"})  # Fields that are axes even while they follow from others

RULES_OF_STACK = {
    "encoder_layer": {"encoder", "encoder-decoder"},
    "decoder_layer": {"decoder", "encoder-decoder"},
    "decoder_inputs": {"encoder-decoder"},
}
"""Fields of a blueprint that only some stacks read."""


@dataclass(frozen=True)
class Difference:
    """One axis in which two variants differ."""

    axis: str  # A field of the configuration, a quirk, a part that is code, "task", "stack" or "parameters"
    kind: str  # "setting", "quirk", "code" or "size"
    a: Any  # Value of the first
    b: Any  # Value of the second


class Differences(list[Difference], Printed):
    """Differences of two variants, a list that prints as a table."""

    def __init__(self, names: tuple[str, str], differences: Iterable[Difference]) -> None:
        super().__init__(differences)
        self.names = names

    def shown(self) -> Iterator[Part]:
        if self:
            yield Table([(one.axis, str(one.a), str(one.b)) for one in self], ("", *self.names))
        else:
            yield Note(f"{self.names[0]} and {self.names[1]} do not differ.")


def diff(a: VariantName | str, b: VariantName | str, task: TaskName | str | None = None) -> Differences:
    """List the differences of two variants that are built for the same task.

    Args:
        a: A variant's name, possibly with settings: "vanilla+faithful", "pre-norm:position=rotary"; or a checkpoint's
            folder, or the name of weights.
        b: Another.
        task: Task of both; by default the first task of `a` that `b` can be built for, too. If it has none,
            each is taken for its own default task. A checkpoint has its own.

    Returns:
        The axes that differ: settings first, then quirks, code and sizes. Empty where both are the same.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, or values contradict each other.
    """
    (one, other), tasks = resolve_both(a, b, task)
    configs = configure(one, tasks[0]), configure(other, tasks[1])
    sizes = skeleton(one, tasks[0]).num_parameters(), skeleton(other, tasks[1]).num_parameters()
    differences = [
        Difference("task", "setting", *tasks),
        Difference("stack", "setting", configs[0].stack, configs[1].stack),
        *(Difference(axis, "setting", *values) for axis, *values in settings(configs, tasks)),
        *(
            Difference(quirk, "quirk", *(quirk in config.quirks for config in configs))
            for quirk in dict.fromkeys((*configs[0].quirks, *configs[1].quirks))
        ),
        *code(configs, tasks),
        Difference("parameters", "size", *sizes),
    ]
    return Differences((a, b), (difference for difference in differences if difference.a != difference.b))


def resolve_both(a: str, b: str, task: str | None = None) -> tuple[tuple[str, str], tuple[str, str]]:
    """Names of two variants with settings, and the task of each: the one given, else one that both have."""
    tasks = [[resolve(name)[1]] if is_saved(name) else VARIANTS.get(parse_name(name).name).tasks for name in (a, b)]
    common = task or next((one for one in tasks[0] if one in tasks[1]), None)
    one, other = resolve(a, common), resolve(b, common)
    return (one[0], other[0]), (one[1], other[1])


def settings(configs: tuple[ZooConfig, ZooConfig], tasks: tuple[str, str]) -> Iterator[tuple[str, Any, Any]]:
    """Pair the settings of two configurations: each field that plays a part in either, with both values."""
    values = [settings_of(config) for config in configs]
    for axis in dict.fromkeys((*values[0], *values[1])):
        one = SETTINGS.get(axis)
        if one is None:
            plays_a_part = any(value.get(axis) for value in values)
        else:
            plays_a_part = any(map(one.is_read, tasks)) and (
                axis in NOT_IMPLIED or not all(one.follows(getattr(config, axis), config) for config in configs)
            )
        if plays_a_part:
            yield axis, values[0].get(axis), values[1].get(axis)


def code(configs: tuple[ZooConfig, ZooConfig], tasks: tuple[str, str]) -> Iterator[Difference]:
    """Pair the names of classes and functions of two variants' blueprints; "usual" for the library's own."""
    blueprints = [transformer_of(config) for config in configs]
    stacks = {config.stack for config in configs}
    for field in dataclasses.fields(Transformer):
        if not field.compare or stacks.isdisjoint(RULES_OF_STACK.get(field.name, stacks)):
            continue
        if field.name == "pooler" and Task.SEQUENCE_CLASSIFICATION not in tasks:
            continue
        parts = (getattr(blueprint, field.name) for blueprint in blueprints)
        names = ("usual" if one == field.default else getattr(one, "__qualname__", one) for one in parts)
        yield Difference(field.name, "code", *names)
