"""Seeds: which runs there are, and which examples are set aside."""

from __future__ import annotations

from collections.abc import Iterable

from zoo.base.errors import ConfigError

DATA_SEED = 0
"""Which examples are set aside where no file says so: the same ones for every seed of a run."""


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
