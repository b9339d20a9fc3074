"""Groups of equal layers of a stack, and the differences of two drawings."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .parts import Block, Drawing, Layer, Residual, Step, roles, with_steps

Items = tuple[Step | Residual, ...]  # Steps of a layer
IN_A_LAYER = re.compile(r"(?:.*\.)?layers\.\d+\.")  # Common prefix of the places of all modules of a layer


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
    details: dict[str, Counter[str]] = {step.path: Counter() for step, _ in roles(first)}
    for number, items in drawn.items():
        for (step, _), (counterpart, _) in zip(roles(first), roles(items), strict=True):
            details[step.path][counterpart.detail] += len(numbers[number])
    found: Items = with_steps(first, lambda step: dataclasses.replace(step, detail=common(details[step.path])))
    return found


def outline(items: Items) -> Items:
    """Leave out of steps what may differ between layers that look the same."""
    found: Items = with_steps(
        items, lambda step: dataclasses.replace(step, detail="", lender="", path=IN_A_LAYER.sub("", step.path))
    )
    return found


def common(details: Mapping[str, int]) -> str:
    total = sum(details.values())
    counts: Counter[str] = Counter()
    for detail, count in details.items():
        counts.update(dict.fromkeys(filter(None, detail.split(", ")), count))
    return ", ".join(
        fact if count == total else f"{fact} in {count} of {total} layers" for fact, count in counts.items()
    )


def places(numbers: Sequence[int], total: int) -> str:
    others = [number for number in range(total) if number not in numbers]
    for prefix, chosen in (("every", numbers), ("all but every", others)):
        period = chosen[0] + 1 if len(chosen) > 1 else total
        if 1 < period < total and list(chosen) == list(range(period - 1, total, period)):
            return f"{prefix} {ordinal(period)} layer"
    runs = [[first for _, first in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    words = [f"{run[0] + 1} to {run[-1] + 1}" if len(run) > 2 else ", ".join(str(at + 1) for at in run) for run in runs]
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(words)}"


def pattern(kinds: Sequence[str]) -> str:
    """Order in which layers of several types follow each other."""
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


Place = tuple[str, str]  # A stack's name, nothing for what belongs to none, and a place in it


@dataclass(frozen=True)
class DrawingComparison:
    """Differences of two drawings."""

    marks: tuple[dict[str, str], dict[str, str]]  # For each of the two, "only" or "changed" by the places of its steps
    words: tuple[str, ...]  # The same as sentences


def compare(a: Drawing, b: Drawing) -> DrawingComparison:
    """Compare two drawings step by step; steps in the same place of stacks of the same name are counterparts."""
    marks: tuple[dict[str, str], dict[str, str]] = ({}, {})
    words = []
    steps = dict(located(a)), dict(located(b))
    for place in dict.fromkeys((*steps[0], *steps[1])):
        here, there = steps[0].get(place), steps[1].get(place)
        where = " ".join(filter(None, place))
        if here is None or there is None:
            (step, _), own, name = (there, marks[1], b.name) if here is None else (here, marks[0], a.name)  # type: ignore[misc]
            own[step.path] = "only"
            words.append(f"{where}: only {name} has {described(step)}.")
        elif facts(*here) != facts(*there):
            marks[0][here[0].path] = marks[1][there[0].path] = "changed"
            words.append(f"{where}: {described(here[0])} in {a.name}, {described(there[0])} in {b.name}.")
    others = {block.name: repeated(block) for block in b.blocks}
    for name, one in ((block.name, repeated(block)) for block in a.blocks if block.name in others):
        if one != others[name]:
            marks[0][f"{name} repeats"] = marks[1][f"{name} repeats"] = "changed"
            words.append(f"{name}: {one} in {a.name}, {others[name]} in {b.name}.")
    return DrawingComparison(marks, tuple(words))


def located(drawing: Drawing) -> Iterator[tuple[Place, tuple[Step, str]]]:
    """Steps of a drawing and their roles, each with a place that does not depend on what else the model has."""
    for block in drawing.blocks:
        for step in (*block.before, *block.after):
            yield (block.name, step.path.rpartition(".")[2]), (step, "stream")
        most = max(block.layers, key=lambda layer: layer.repeats)
        for layer in block.layers:
            name = block.name if layer is most else f"{block.name}, {layer.where}:"
            for step, role in roles(layer.items):
                yield (name, IN_A_LAYER.sub("", step.path)), (step, role)
    for step in (*drawing.head, *drawing.rules):
        yield ("", step.path), (step, "stream")


def facts(step: Step, role: str) -> tuple[Any, ...]:
    """Key that is equal for equal steps."""
    return role, step.label, step.detail, step.note, step.quirks


def described(step: Step) -> str:
    quirks = f"quirk {', '.join(step.quirks)}" if step.quirks else ""
    facts = ", ".join(filter(None, (step.detail, quirks)))
    return f"{step.label} ({facts})" if facts else step.label


def repeated(block: Block) -> str:
    times = " and ".join(f"{layer.repeats} times{f' ({layer.where})' * bool(layer.where)}" for layer in block.layers)
    return " ".join(filter(None, (times, block.remark and f"({block.remark})", *block.quirks)))
