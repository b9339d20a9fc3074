"""Values of training arguments to be tried for every variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from zoo.base.errors import ConfigError
from zoo.registry import parse_value

SHORT_NAMES = {"lr": "learning_rate"}
Values = dict[str, list[Any]]


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
    """Whether a value is the least or the greatest number that was tried, so that a better one may lie beyond."""
    numbers = [other for other in tried if isinstance(other, (int, float))]
    return len(numbers) > 1 and value in (min(numbers), max(numbers))


def combinations(values: Values) -> list[dict[str, Any]]:
    """Combine the values of all arguments."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
