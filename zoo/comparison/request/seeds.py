"""Seeds, budgets and sweeps of a request: its runs, and how long each is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.building.keywords import TrainingOptions
from zoo.registry import parse_value
from zoo.registry.names import is_number, split_at_commas, write_value

SHORT_NAMES = {"lr": "learning_rate"}
Values = dict[str, list[Any]]

TRAINING_FIELDS = frozenset(TrainingOptions.__annotations__)


def read_sweep(given: str | Iterable[str] | Mapping[str, Sequence[Any]] | None) -> Values:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = [(name, list(values)) for name, values in given.items()]
    else:
        pairs = [read_values(text) for text in ([given] if isinstance(given, str) else given)]
    values: Values = {}
    for name, tried in pairs:
        name = SHORT_NAMES.get(name, name)
        if name in values:
            raise ConfigError(f"the sweep has {name} twice; give it once, with all of its values")
        if not tried or len(set(map(repr, tried))) < len(tried):
            raise ConfigError(f"the sweep of {name} has the values {tried}; give different ones, e.g. {name}=1e-3,5e-4")
        values[name] = tried
    return values


def read_values(text: str) -> tuple[str, list[Any]]:
    """Read the values of one argument: "lr=1e-3,5e-4"."""
    name, equals, listed = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise ConfigError(f"cannot read the sweep {text!r}; valid: ARGUMENT=VALUE,VALUE,..., e.g. lr=1e-3,5e-4")
    return name.strip(), [parse_value(value) for value in split_at_commas(listed, text) if value.strip()]


def write_values(name: str, values: Sequence[Any]) -> str:
    """Write what `read_values` reads: "learning_rate=0.001,0.0005"."""
    return f"{name}={','.join(map(write_value, values))}"


def at_the_edge(value: Any, tried: Sequence[Any]) -> bool:
    """Whether no number that was tried is less, or none is greater, so that a better one may lie beyond."""
    numbers = [other for other in tried if is_number(other)]
    return len(set(numbers)) > 1 and is_number(value) and not min(numbers) < value < max(numbers)


def beyond(value: float, tried: Sequence[float]) -> float | None:
    """The next value beyond an edge, as far as its neighbour is; None where numbers are not all above zero."""
    ordered = sorted(set(tried), reverse=value == max(tried))
    if min(ordered) <= 0:
        return None
    further = float(f"{value * value / ordered[1]:.3g}")
    if all(isinstance(one, int) for one in tried):
        return None if round(further) in ordered or further < 1 else round(further)
    return further


def model_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of swept values that are fields of a model's configuration, such as initializer_range."""
    from zoo.models.fields import SETTINGS

    return {name: value for name, value in values.items() if name in SETTINGS and name not in TRAINING_FIELDS}


KINDS = ("steps", "tokens", "flops", "seconds")
LENGTHS = ("max_steps", "num_train_epochs")  # Training arguments that set the length of a run


@dataclass(frozen=True)
class Budget:
    """Length of every run: an amount of one of `KINDS`."""

    kind: str
    amount: float

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:.10g}"


def read_budget(given: str | Mapping[str, float] | None) -> Budget | None:
    """Read a budget, "tokens=2e6" or {"tokens": 2e6}; None is the recipe's."""
    if given is None:
        return None
    text = given if isinstance(given, str) else ",".join(f"{kind}={amount}" for kind, amount in given.items())
    kind, _, value = (part.strip() for part in text.partition("="))
    InvalidChoiceError.check(kind, valid=KINDS, kind="budget")
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0) or (kind == "steps" and amount % 1):
        number = "a whole NUMBER" if kind == "steps" else "NUMBER"
        raise ConfigError(f"the budget {text!r} was given; valid: {kind}={number}, above 0, e.g. {kind}=1e6")
    return Budget(kind, amount)


DATA_SEED = 0  # Seed of the examples that are set aside without a held-out file: the same for every seed of a run
FEWEST_SEEDS = 3  # Seeds from which on a difference is tested
MOST_SEEDS = 16  # Default of the largest number of seeds for undecided variants
MOST_LOOKS = 64  # The largest such limit: levels of its tests take seconds to compute


def read_seeds(seeds: int | str | Iterable[int], first: int = 0) -> list[int]:
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
    following = next_seed(found)
    return [*found, *range(following, following + FEWEST_SEEDS - len(found))]


def next_seed(seeds: Iterable[int]) -> int:
    return max(seeds) + 1
