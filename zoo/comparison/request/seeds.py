"""Seeds: which runs there are, and which examples are set aside."""

from __future__ import annotations

from collections.abc import Iterable

from zoo.base.errors import ConfigError

DATA_SEED = 0
"""Seed of the examples that are set aside without a held-out file: the same for every seed of a run."""


FEWEST_SEEDS = 3
"""Seeds from which on a difference is tested."""

MOST_SEEDS = 16
"""Seeds up to which undecided variants get another one, unless the request says otherwise."""

MOST_LOOKS = 64
"""The largest such limit: levels of its tests take seconds to compute."""


def read_seeds(seeds: int | str | Iterable[int], first: int = 0) -> list[int]:
    """Read which seeds there are to be."""
    if isinstance(seeds, str):
        parts = [part.strip() for part in seeds.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise ConfigError(f"the seeds {seeds!r} were given; valid: a number of seeds, or seeds such as 0,1,2")
        seeds = int(parts[0]) if len(parts) == 1 else [int(part) for part in parts]
    listed = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise ConfigError(f"the seeds {seeds!r} were given; there must be at least one, and each once")
    return listed


def enough_seeds(seeds: Iterable[int]) -> list[int]:
    """Fill seeds up to those with which tests begin."""
    found = list(seeds)
    while len(found) < FEWEST_SEEDS:
        found.append(next_seed(found))
    return found


def next_seed(seeds: Iterable[int]) -> int:
    """The seed after all others."""
    return max(seeds) + 1
