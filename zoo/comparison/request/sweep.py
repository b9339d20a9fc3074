"""Values of training arguments to be tried for every variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from zoo.base.errors import ConfigError
from zoo.building.keywords import TrainingOptions
from zoo.registry import parse_value

SHORT_NAMES = {"lr": "learning_rate"}
Values = dict[str, list[Any]]

TRAINING_FIELDS = frozenset(TrainingOptions.__annotations__)


def read_sweep(given: str | Iterable[str] | Mapping[str, Sequence[Any]] | None) -> Values:
    """Read what is to be tried."""
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
    return name.strip(), [parse_value(value) for value in listed.split(",") if value.strip()]


def write_values(name: str, values: Sequence[Any]) -> str:
    """Write what `read_values` reads: "learning_rate=0.001,0.0005"."""
    return f"{name}={','.join(map(str, values))}"


def at_the_edge(value: Any, tried: Sequence[Any]) -> bool:
    """Whether no number that was tried is less, or none is greater, so that a better one may lie beyond."""
    numbers = [other for other in tried if is_number(other)]
    return len(set(numbers)) > 1 and is_number(value) and not min(numbers) < value < max(numbers)


def is_number(value: Any) -> bool:
    """Whether it is a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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

    known = SETTINGS
    return {name: value for name, value in values.items() if name in known and name not in TRAINING_FIELDS}


def combinations(values: Values) -> list[dict[str, Any]]:
    """Combine the values of all arguments."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
