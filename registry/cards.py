"""Cards: the description of a variant as plain data."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.base.printed import Part, Printed, Table, Title

from .names import parse_name
from .variants import VARIANTS, Described

if TYPE_CHECKING:
    from zoo.building.literals import VariantName

BUILDING = "zoo.building.builder"  # The module that registers the finder of facts when it is imported


@dataclass(frozen=True)
class Facts:
    """Facts about a variant that only a model of it shows."""

    num_parameters: int  # Number of parameters with these settings, for the default task
    limits: tuple[str, ...] = ()  # Limitations that follow from its settings, a sentence each
    deviations: tuple[str, ...] = ()  # Differences of its parts from their papers, a sentence each


FactFinder = TypeVar("FactFinder", bound=Callable[[str], Facts])

_fact_finder: Callable[[str], Facts] | None = None


def find_facts_with(finder: FactFinder) -> FactFinder:
    """Decorator: register the function that finds facts of a name's default build; the registry imports no model."""
    global _fact_finder  # noqa: PLW0603
    _fact_finder = finder
    return finder


def find_facts(spec: str) -> Facts:
    if _fact_finder is None:
        importlib.import_module(BUILDING)
    assert _fact_finder is not None
    return _fact_finder(spec)


@dataclass(frozen=True, kw_only=True)
class Card(Described, Printed):
    """Facts about a variant.

    Attributes:
        settings: The configuration fields that it sets, with the preset and quirks that were asked for.
        task_defaults: Settings for single tasks.
        presets: Its sizes and what they set.
        quirks: Names of the defects of the original that can be switched on, and what each does.
        distribution: Its distribution: "transformer-zoo", that of a plugin, or None for a script.
        version: That distribution's version.
        module: The module that registered it.
        file: The file that declares it, or has its builder.
        line: The line where it begins.
        spec: The name that was given, with its settings.
        known: The facts, where they were found already.
    """

    settings: dict[str, Any]
    task_defaults: dict[str, dict[str, Any]]
    presets: dict[str, dict[str, Any]]
    quirks: dict[str, str]
    distribution: str | None
    version: str | None
    module: str
    file: str | None
    line: int | None
    spec: str
    known: Facts | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        found = {"limits": self.limits, "deviations": self.deviations, "num_parameters": self.num_parameters}
        written = dataclasses.asdict(self) | found
        del written["known"]
        return written

    @cached_property
    def facts(self) -> Facts:
        """Facts that only a model of it shows, found when first used: that imports torch."""
        return find_facts(self.spec) if self.known is None else self.known

    @property
    def num_parameters(self) -> int:
        """Number of parameters with these settings, for the default task."""
        return self.facts.num_parameters

    @property
    def limits(self) -> tuple[str, ...]:
        """Limitations: those that its author names, and those that follow from these settings."""
        return (*VARIANTS.get(self.name).limits, *self.facts.limits)

    @property
    def deviations(self) -> tuple[str, ...]:
        """Differences from its paper, and of its parts from theirs."""
        return (*VARIANTS.get(self.name).deviations, *self.facts.deviations)

    def shown(self) -> Iterator[Part]:
        """Name and summary, and a row for every fact."""
        settings = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        facts = {
            "tasks": ", ".join(self.tasks),
            "paper": self.paper or "",
            "source": self.source,
            "tags": ", ".join(self.tags),
            "parameters": f"{self.num_parameters:,} for {self.tasks[0]}",
            "settings": settings,
            "presets": ", ".join(self.presets),
            "quirks": ", ".join(self.quirks),
            "limits": " ".join(self.limits),
            "deviations": " ".join(self.deviations),
            "from": " ".join(filter(None, (self.distribution, self.version))),
        }
        yield Title(self.name, self.summary)
        yield Table([(name, text) for name, text in facts.items() if text])


def describe(name: VariantName | str) -> Card:
    """Describe a variant.

    Args:
        name: Its name, an alias, or a name with settings such as "vanilla@small+faithful".

    Raises:
        UnknownVariantError: When the variant is unknown.
        UnknownPresetError: When it has no such preset.
        UnknownQuirkError: When it has no such quirk.
        NameSyntaxError: When the name cannot be read.
        ConfigError: When a setting is unknown, or values contradict each other.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    settings = variant.settings(preset=spec.preset, quirks=spec.quirks, faithful=spec.faithful)
    file, line = variant.place or _location(variant.code)
    return Card(
        **{one.name: getattr(variant, one.name) for one in dataclasses.fields(Described)},
        settings={**settings, **spec.overrides},
        task_defaults={task: dict(values) for task, values in variant.task_defaults.items()},
        presets={preset: dict(values) for preset, values in variant.presets.items()},
        quirks={quirk: known.description for quirk, known in variant.quirks.items()},
        distribution=variant.origin.distribution,
        version=variant.origin.version,
        module=variant.origin.module,
        file=file,
        line=line,
        spec=str(spec),
        known=find_facts(str(spec)) if spec.overrides else None,  # which refuses settings that cannot be built
    )


def _location(builder: object) -> tuple[str | None, int | None]:
    code = getattr(inspect.unwrap(builder), "__code__", None) if callable(builder) else None
    return (code.co_filename, code.co_firstlineno) if code else (None, None)
