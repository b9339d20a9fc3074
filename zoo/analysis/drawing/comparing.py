"""In what two drawings differ, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .layers import IN_A_LAYER
from .parts import Block, Drawing, Residual, Step, Together

Place = tuple[str, str]
"""A stack's name, nothing for what belongs to none, and a place in it."""


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
            words.append(f"{where}: only {name} has {told(step)}.")
        elif facts(*here) != facts(*there):
            marks[0][here[0].path] = marks[1][there[0].path] = "changed"
            words.append(f"{where}: {told(here[0])} in {a.name}, {told(there[0])} in {b.name}.")
    counts = [{block.name: block for block in drawing.blocks} for drawing in (a, b)]
    for name in (name for name in counts[0] if name in counts[1]):
        one, other = counts[0][name], counts[1][name]
        if repeated(one) != repeated(other):
            marks[0][f"{name} repeats"] = marks[1][f"{name} repeats"] = "changed"
            words.append(f"{name}: {repeated(one)} in {a.name}, {repeated(other)} in {b.name}.")
    return DrawingComparison(marks, tuple(words))


def located(drawing: Drawing) -> Iterator[tuple[Place, tuple[Step, str]]]:
    """Go through the steps of a drawing.

    Yields:
        Each step's place, which does not depend on what else the model has; the step; and its role there.
    """
    for block in drawing.blocks:
        for step in (*block.before, *block.after):
            yield (block.name, step.path.rpartition(".")[2]), (step, "stream")
        most = max(block.layers, key=lambda layer: layer.repeats)
        for layer in block.layers:
            name = block.name if layer is most else f"{block.name}, {layer.where}:"
            for item in layer.items:
                for step, role in roles(item):
                    yield (name, IN_A_LAYER.sub("", step.path)), (step, role)
    for step in (*drawing.head, *drawing.rules):
        yield ("", step.path), (step, "stream")


def roles(item: Step | Residual) -> Iterator[tuple[Step, str]]:
    """Go through the steps of a part of a layer."""
    if isinstance(item, Step):
        yield item, "stream"
        return
    for step in item.skip:
        yield step, "skip"
    for part in item.branch:
        for step in part.steps if isinstance(part, Together) else (part,):
            yield step, "beside others" if isinstance(part, Together) else "branch"
    for step in item.after:
        yield step, "after"


def facts(step: Step, role: str) -> tuple[Any, ...]:
    """Key that is equal for equal steps."""
    return role, step.label, step.detail, step.note, step.quirks


def told(step: Step) -> str:
    """Name a step with all that is known about it."""
    quirks = f"quirk {', '.join(step.quirks)}" if step.quirks else ""
    facts = ", ".join(filter(None, (step.detail, quirks)))
    return f"{step.label} ({facts})" if facts else step.label


def repeated(block: Block) -> str:
    """Describe how often layers are applied."""
    times = " and ".join(f"{layer.repeats} times{f' ({layer.where})' * bool(layer.where)}" for layer in block.layers)
    return " ".join(filter(None, (times, block.remark and f"({block.remark})", *block.quirks)))
