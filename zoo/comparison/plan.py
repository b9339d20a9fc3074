"""What is compared: written into the comparison's folder, so that another command can go on with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zoo.errors import ConfigError, OutputExistsError, UnknownNameError
from zoo.training.record import first_difference

from .files import PLAN, RESULTS, read_json, write_json

FORMAT = 1
"""Version of comparison.json."""


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        common: What all runs have in common, as plain data by name: the task, the data, the recipe, the budget.
        names: The variants' names.
        seeds: The seeds.
        baseline: The variant that the others are measured against.
        seconds: How long the commands that ran something, and came to their end, have taken.
    """

    common: dict[str, Any]
    names: list[str]
    seeds: list[int]
    baseline: str
    seconds: float = 0.0

    def write(self, folder: Path) -> None:
        """Write it down.

        Args:
            folder: The comparison's folder.
        """
        write_json(folder / PLAN, {"format": FORMAT, **asdict(self)})


def make_plan(
    folder: Path, common: Mapping[str, Any], names: Sequence[str], seeds: Sequence[int], baseline: str | None
) -> Plan:
    """Begin a comparison, or extend the one that is in a folder by more variants or seeds.

    Args:
        folder: The comparison's folder.
        common: What all runs are to have in common.
        names: The variants' names.
        seeds: The seeds.
        baseline: The variant that the others are to be measured against, by default the first one of the comparison.

    Returns:
        The plan, with what was there before in front.

    Raises:
        OutputExistsError: When the folder holds another comparison.
        UnknownNameError: When the baseline is not compared.
    """
    common = plain(common)
    known = find_plan(folder)
    if known is None:
        plan = Plan(dict(common), list(names), list(seeds), names[0])
    elif (difference := first_difference(known.common, common)) is not None:
        raise OutputExistsError(f"{folder} holds another comparison: {difference}; choose another folder (-o)")
    else:
        plan = replace(known, names=united(known.names, names), seeds=united(known.seeds, seeds))
    if baseline is not None and baseline not in plan.names:
        raise UnknownNameError(baseline, plan.names, kind="baseline")
    return plan if baseline is None else replace(plan, baseline=baseline)


def find_plan(folder: Path) -> Plan | None:
    """Read what a folder's comparison is of.

    Args:
        folder: The folder.

    Returns:
        The plan, None where there is no comparison.

    Raises:
        OutputExistsError: When there is one that another version of the zoo has written.
    """
    written = read_json(folder / PLAN)
    if isinstance(written, dict) and written.pop("format", None) == FORMAT:
        return Plan(**written)
    if written is not None or (folder / RESULTS).exists():
        raise OutputExistsError(
            f"{folder} holds a comparison that another version of the zoo has written; choose another folder (-o)"
        )
    return None


def united(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Put two lists together.

    Args:
        first: Those in front.
        second: The others, and possibly some of the first again.

    Returns:
        Each once.
    """
    return list(dict.fromkeys((*first, *second)))


def plain(value: Any) -> Any:
    """Turn a value into what it is after it has been written and read.

    Args:
        value: What JSON can hold, or is written as a text.

    Returns:
        Plain data.
    """
    return json.loads(json.dumps(value, default=str))


def read_seeds(seeds: int | str | Iterable[int], first: int = 0) -> list[int]:
    """Read which seeds there are to be.

    Args:
        seeds: How many, from `first` on; or several, as numbers or as "0,1,2".
        first: The first one.

    Returns:
        The seeds.

    Raises:
        ConfigError: When there are none, or one is given twice.
    """
    if isinstance(seeds, str):
        parts = [part.strip() for part in seeds.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise ConfigError(f"the seeds {seeds!r} were given; valid: a number of seeds, or seeds such as 0,1,2")
        seeds = int(parts[0]) if len(parts) == 1 else [int(part) for part in parts]
    listed = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise ConfigError(f"the seeds {seeds!r} were given; there must be at least one, and each once")
    return listed


def check_names(names: Sequence[str]) -> None:
    """Require names to be there, and to differ.

    Args:
        names: What was given.

    Raises:
        ConfigError: When there are none, or one is given twice.
    """
    if not names:
        raise ConfigError("no variant was given; give the names of those to compare")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name!r} was given twice; give each variant once, or variants with different settings")
