"""The plan of a comparison, written into its folder, so that another command can extend it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zoo.base import formats
from zoo.base.errors import OutputExistsError, UnknownNameError
from zoo.base.files import read_mapping, write_json
from zoo.training.record import first_difference

from .files import PLAN, RESULTS, plain


@dataclass(frozen=True)
class ComparisonPlan:
    """The plan of a comparison."""

    # Facts that all runs share, as plain data by name: the task, the data, the recipe, the budget
    common: dict[str, Any]
    names: list[str]
    seeds: list[int]
    baseline: str  # The variant that the others are measured against
    seconds: float = 0.0  # How long the commands that ran something, and came to their end, have taken

    @property
    def sweep(self) -> dict[str, list[Any]]:
        return self.common["sweep"]

    def write(self, folder: Path) -> None:
        write_json(folder / PLAN, {**formats.PLAN.stamp, **asdict(self)})


def make_plan(
    folder: Path, common: Mapping[str, Any], names: Sequence[str], seeds: Sequence[int], baseline: str | None
) -> ComparisonPlan:
    """Begin a comparison, or extend the one that is in a folder by more variants, seeds or values of a sweep."""
    shared: dict[str, Any] = plain(common)
    known = find_plan(folder)
    if known is None:
        plan = ComparisonPlan(shared, list(names), list(seeds), names[0])
    else:
        if known.sweep.keys() == shared["sweep"].keys():
            shared["sweep"] = {name: united(known.sweep[name], values) for name, values in shared["sweep"].items()}
            known = replace(known, common={**known.common, "sweep": shared["sweep"]})
        if (difference := first_difference(known.common, shared)) is not None:
            raise OutputExistsError(f"{folder} holds another comparison: {difference}; choose another folder (-o)")
        plan = replace(known, names=united(known.names, names), seeds=united(known.seeds, seeds))
    if baseline is None:
        return plan
    UnknownNameError.check(baseline, valid=plan.names, kind="baseline")
    return replace(plan, baseline=baseline)


def find_plan(folder: Path) -> ComparisonPlan | None:
    if written := read_mapping(folder / PLAN):
        formats.PLAN.check(written, folder / PLAN)
        return ComparisonPlan(**{name: value for name, value in written.items() if name != formats.PLAN.key})
    if (folder / PLAN).exists() or (folder / RESULTS).exists():
        raise OutputExistsError(
            f"{folder} holds a comparison that is damaged, or that another version of the zoo has written; choose "
            "another folder (-o)"
        )
    return None


def united(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Join two lists without equal values, which may be lists and dictionaries too."""
    found: list[Any] = []
    for one in (*first, *second):
        if one not in found:
            found.append(one)
    return found
