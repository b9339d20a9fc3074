"""Sizes that make variants equal: in parameters, or in operations a token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from zoo.base.errors import ConfigError
from zoo.building.builder import config
from zoo.models import ZooConfig
from zoo.registry import parse_name

from ..request.options import WAYS

TOLERANCE = 0.01  # How far apart equal variants may be
CLOSE = 0.001  # How near is near enough for the search to end

WIDEST = 64  # How many times larger than the variant's own a size may become
Measure = Callable[[str], float]  # Quantity to match, of a variant by its name


@dataclass(frozen=True)
class Match:
    """A variant with the sizes that make it equal to the baseline."""

    name: str  # Its name, with these sizes among its settings
    value: float
    target: float
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        """How far above the baseline it is, as a share; negative below."""
        return self.value / self.target - 1


@dataclass(frozen=True)
class Sizes:
    """Start of a search: a variant's name, its task, and the recipe's settings."""

    name: str
    task: str
    settings: dict[str, Any]

    def config(self, **changes: int) -> ZooConfig:
        return config(with_settings(self.name, changes), self.task, **{**self.settings, **changes})

    def following(self, encoder: str, decoder: str, value: int) -> dict[str, int]:
        """Change a size of the encoder, and in proportion that of the decoder where it does not follow by itself."""
        own = self.config()
        if not own.is_encoder_decoder:
            return {encoder: value}
        wanted = max(1, round(getattr(own, decoder) * value / getattr(own, encoder)))
        followed = getattr(self.config(**{encoder: value}), decoder)
        return {encoder: value} if followed == wanted else {encoder: value, decoder: wanted}


def match(sizes: Sizes, target: float, measure: Measure, by: str | None = None) -> Match:
    measure = cache(measure)
    own = Match(sizes.name, measure(sizes.name), target)
    if abs(own.difference) <= TOLERANCE:
        return own
    in_name = parse_name(sizes.name).overrides
    ways = [by] if by is not None else [way for way, setting in WAYS.items() if setting not in in_name]
    best = own
    for way in ways:
        if WAYS[way] in in_name:
            others = ", ".join(other for other in WAYS if other != way)
            raise ConfigError(f"{sizes.name!r} sets its {WAYS[way]} itself; match it by something else: {others}")
        for found in candidates(sizes, target, measure, way, finer=way == "width" or by is None):
            best = min(best, found, key=lambda one: abs(one.difference))
        if abs(best.difference) <= TOLERANCE:
            return best
    tried = " or ".join(ways) or "any size, as its name sets all of them"
    raise ConfigError(
        f"{sizes.name!r} cannot be made equal to the baseline by {tried}: the nearest is {best.name!r} with "
        f"{best.value:,.0f}, {best.difference:+.1%} from {target:,.0f}; give its sizes in its name, or do not match"
    )


def candidates(sizes: Sizes, target: float, measure: Measure, way: str, *, finer: bool) -> Iterator[Match]:
    """Sizes on both sides of the baseline's value, in one of `WAYS`; `finer` steps by the intermediate size."""
    own = sizes.config()
    free = "intermediate_size" not in parse_name(sizes.name).overrides
    deep = partial(sizes.following, "num_hidden_layers", "decoder_layers")
    inner_size = partial(sizes.following, "intermediate_size", "decoder_intermediate_size")
    unit = 2 * math.lcm(own.num_attention_heads, own.decoder_attention_heads or 1)  # rotary needs even heads

    def with_sizes(settings: dict[str, int]) -> Match:
        name = with_settings(sizes.name, settings)
        return Match(name, measure(name), target, settings)

    def narrow(others: dict[str, int], inner: int) -> Match:
        return with_sizes({**others, **inner_size(inner)})

    def wide(units: int) -> dict[str, int]:
        inner = max(1, round(own.intermediate_size * units * unit / own.hidden_size))
        return {"hidden_size": units * unit, **(inner_size(inner) if free else {})}

    if way == "intermediate":
        yield from around(partial(narrow, {}), own.intermediate_size)
        return
    settings, start = (deep, own.num_hidden_layers) if way == "depth" else (wide, max(1, own.hidden_size // unit))
    for coarse in around(lambda size: with_sizes(settings(size)), start):
        yield coarse
        if finer and free and abs(coarse.difference) > TOLERANCE:
            inner = coarse.settings.get("intermediate_size", own.intermediate_size)
            yield from around(partial(narrow, coarse.settings), inner)


def around(at: Callable[[int], Match], start: int) -> list[Match]:
    """Find the two neighbouring sizes between which a growing value meets its target."""
    low, high = 0, max(1, start)
    found = {high: at(high)}
    below, above = -1.0, found[high].difference  # nothing at size 0
    while above < 0 and high < WIDEST * start:
        low, below, high = high, above, high * 2
        found[high] = at(high)
        above = found[high].difference
    straight = True
    while high - low > 1:
        # By turns along a straight line, which is quick, and in the middle, which is sure.
        share = -below / (above - below) if straight and above > below else 0.5
        size = min(max(low + round(share * (high - low)), low + 1), high - 1)
        straight = not straight
        found[size] = at(size)
        if found[size].difference < 0:
            low, below = size, found[size].difference
        else:
            high, above = size, found[size].difference
        if abs(found[size].difference) <= CLOSE:
            return [found[size]]
    return [found[size] for size in (low, high) if size in found]


def with_settings(name: str, settings: dict[str, Any]) -> str:
    spec = parse_name(name)
    return str(replace(spec, overrides={**spec.overrides, **settings})) if settings else name
