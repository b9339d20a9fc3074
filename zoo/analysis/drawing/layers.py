"""Groups of equal layers of a stack, and short descriptions of them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from .parts import Layer, Residual, Step, steps_of, with_steps

Items = tuple[Step | Residual, ...]
"""Steps of a layer."""

IN_A_LAYER = re.compile(r"(?:.*\.)?layers\.\d+\.")
"""Common prefix of the places of all modules of a layer."""


def merged(drawn: Mapping[int, Items], numbers: Mapping[int, Sequence[int]], total: int) -> tuple[Layer, ...]:
    """Take layers together that are made of the same steps in the same order."""
    kinds: dict[Items, list[int]] = {}
    for number, items in drawn.items():
        kinds.setdefault(outline(items), []).append(number)
    return tuple(
        Layer(
            with_common_details({number: drawn[number] for number in alike}, numbers),
            sum(len(numbers[number]) for number in alike),
            places(sorted(member for number in alike for member in numbers[number]), total) if len(kinds) > 1 else "",
        )
        for alike in kinds.values()
    )


def with_common_details(drawn: Mapping[int, Items], numbers: Mapping[int, Sequence[int]]) -> Items:
    """Draw layers that differ in details only as one."""
    first = next(iter(drawn.values()))
    details: dict[str, Counter[str]] = {step.path: Counter() for step in steps_in(first)}
    for number, items in drawn.items():
        for step, counterpart in zip(steps_in(first), steps_in(items), strict=True):
            details[step.path][counterpart.detail] += len(numbers[number])
    return with_steps(first, lambda step: dataclasses.replace(step, detail=common(details[step.path])))


def outline(items: Items) -> Items:
    """Leave out of steps what may differ between layers that look the same."""
    return with_steps(
        items,
        lambda step: dataclasses.replace(step, detail="", lender="", path=IN_A_LAYER.sub("", step.path)),
    )


def steps_in(items: Items) -> list[Step]:
    """List the steps of a layer in order."""
    return [step for item in items for step in steps_of(item)]


def common(details: Mapping[str, int]) -> str:
    """Combine the details of several layers."""
    total = sum(details.values())
    counts: Counter[str] = Counter()
    for detail, count in details.items():
        counts.update(dict.fromkeys(filter(None, detail.split(", ")), count))
    return ", ".join(
        fact if count == total else f"{fact} in {count} of {total} layers" for fact, count in counts.items()
    )


def places(numbers: Sequence[int], total: int) -> str:
    """Describe which layers of a stack are meant."""
    others = [number for number in range(total) if number not in numbers]
    for prefix, chosen in (("every", numbers), ("all but every", others)):
        period = chosen[0] + 1 if len(chosen) > 1 else total
        if 1 < period < total and list(chosen) == list(range(period - 1, total, period)):
            return f"{prefix} {ordinal(period)} layer"
    runs = [[first for _, first in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    words = [f"{run[0] + 1} to {run[-1] + 1}" if len(run) > 2 else ", ".join(str(at + 1) for at in run) for run in runs]
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(words)}"


def pattern(kinds: Sequence[str]) -> str:
    """Say in which order layers of several types follow each other."""
    if len(set(kinds)) < 2:
        return ""
    size = len(kinds)
    period = next(step for step in range(1, size + 1) if all(kinds[at] == kinds[at % step] for at in range(size)))
    runs = [f"{len(list(run))} {kind}" for kind, run in groupby(kinds[:period])]
    return ", ".join([*runs, "again and again"] if period < size else runs)


def ordinal(number: int) -> str:
    """Write a number as a rank: 2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
