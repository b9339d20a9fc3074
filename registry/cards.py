"""Cards: what there is to know about a variant, as plain data."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .names import parse_name
from .variants import VARIANTS

Counter = TypeVar("Counter", bound=Callable[..., int])

Finder = TypeVar("Finder", bound=Callable[..., Sequence[str]])

BUILDING = "zoo.building"
"""The module whose import says how to count parameters and how to find limits."""

_parameter_counter: Callable[[str], int] | None = None
_limit_finder: Callable[[str], Sequence[str]] | None = None


def count_parameters_with(counter: Counter) -> Counter:
    """Say how to count parameters: a decorator. The registry knows no model, so whoever does tells it.

    Args:
        counter: Called with a name as `parse_name` reads it, returns the number of parameters of its default build. It
            should not allocate them.

    Returns:
        The counter.
    """
    global _parameter_counter  # noqa: PLW0603
    _parameter_counter = counter
    return counter


def find_limits_with(finder: Finder) -> Finder:
    """Say how to find limits that follow from a variant's settings: a decorator, as [`count_parameters_with`][].

    Args:
        finder: Called with a name as `parse_name` reads it, returns a sentence for every limit.

    Returns:
        The finder.
    """
    global _limit_finder  # noqa: PLW0603
    _limit_finder = finder
    return finder


@dataclass(frozen=True)
class Card:
    """What there is to know about a variant.

    Attributes:
        name: Its name, without aliases.
        summary: One line.
        description: The rest of its docstring.
        source: Where the design or the code comes from.
        paper: The paper that describes it.
        tasks: What it can be built for; the first is the default.
        tags: Words to find it by.
        aliases: Its other names.
        settings: The configuration fields that it sets, with the preset and quirks that were asked for.
        task_defaults: What it sets for single tasks.
        presets: Its sizes and what they set.
        quirks: Names of the defects of the original that can be switched on, and what each does.
        limits: What it cannot do: what its author says, and what follows from these settings.
        deprecated: Why it should no longer be used.
        num_parameters: Number of parameters with these settings, for the default task.
        distribution: What provides it: "transformer-zoo", a plugin's distribution, or None for a script.
        version: That distribution's version.
        module: The module that registered it.
        file: The file its builder is in.
        line: The line where it begins.
    """

    name: str
    summary: str
    description: str
    source: str
    paper: str | None
    tasks: tuple[str, ...]
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    settings: dict[str, Any]
    task_defaults: dict[str, dict[str, Any]]
    presets: dict[str, dict[str, Any]]
    quirks: dict[str, str]
    limits: tuple[str, ...]
    deprecated: str | None
    num_parameters: int
    distribution: str | None
    version: str | None
    module: str
    file: str | None
    line: int | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to what JSON can hold.

        Returns:
            The fields by name, in order.
        """
        return dataclasses.asdict(self)


def describe(name: str) -> Card:
    """Tell what there is to know about a variant.

    Args:
        name: Its name, an alias, or a name with settings such as "vanilla@small+faithful".

    Returns:
        Its card.

    Raises:
        UnknownVariantError: When there is no such variant.
        UnknownPresetError: When it has no such preset.
        UnknownQuirkError: When it has no such quirk.
        NameSyntaxError: When the name cannot be read.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    settings = variant.settings(preset=spec.preset, quirks=spec.quirks, faithful=spec.faithful)
    file, line = _location(variant.builder)
    return Card(
        name=variant.name,
        summary=variant.summary,
        description=variant.description,
        source=variant.source,
        paper=variant.paper,
        tasks=variant.tasks,
        tags=variant.tags,
        aliases=variant.aliases,
        settings={**settings, **spec.overrides},
        task_defaults={task: dict(values) for task, values in variant.task_defaults.items()},
        presets={preset: dict(values) for preset, values in variant.presets.items()},
        quirks={quirk: known.description for quirk, known in variant.quirks.items()},
        limits=(*variant.limits, *_find_limits(str(spec))),
        deprecated=variant.deprecated,
        num_parameters=_count_parameters(str(spec)),
        distribution=variant.origin.distribution,
        version=variant.origin.version,
        module=variant.origin.module,
        file=file,
        line=line,
    )


def _count_parameters(name: str) -> int:
    if _parameter_counter is None:
        importlib.import_module(BUILDING)
    assert _parameter_counter is not None
    return _parameter_counter(name)


def _find_limits(name: str) -> Sequence[str]:
    if _limit_finder is None:
        importlib.import_module(BUILDING)
    assert _limit_finder is not None
    return _limit_finder(name)


def _location(builder: Callable[..., Any]) -> tuple[str | None, int | None]:
    code = getattr(inspect.unwrap(builder), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (None, None)
