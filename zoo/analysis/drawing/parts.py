"""Parts of a drawing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zoo.base.printed import Part, Picture, Printed

Kind = Literal[
    "embedding",
    "position",
    "inner-position",
    "attention",
    "cross-attention",
    "mixer",
    "feed-forward",
    "norm",
    "linear",
    "dropout",
    "scale",
    "rule",
    "other",
]
"""Sorts of modules; an "inner-position" acts inside of attention rather than on embeddings."""


@dataclass(frozen=True)
class Step:
    """One module at work.

    Attributes:
        label: Kind of step, e.g. "LayerNorm" or "cross attention".
        detail: Further facts, e.g. "8 heads of 64".
        path: Its place in the model, e.g. "model.decoder.layers.0.mlp".
        note: Description, where it is not one of the library's own parts.
        quirks: Names of the quirks that change it, or bring it.
        kind: Kind of module.
        lender: The place of the step that it shares weights with, if any.
    """

    label: str
    detail: str
    path: str
    note: str = ""
    quirks: tuple[str, ...] = ()
    kind: Kind = "other"
    lender: str = ""


@dataclass(frozen=True)
class Together:
    """Sublayers that read the same input and add their outputs.

    Attributes:
        steps: The sublayers.
    """

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Residual:
    """A residual connection: `after(skip(x) + branch(x))`.

    Attributes:
        skip: Steps on the skip connection.
        branch: Steps on the branch.
        after: Steps after the sum.
    """

    skip: tuple[Step, ...]
    branch: tuple[Step | Together, ...]
    after: tuple[Step, ...]

    def roles(self) -> Iterator[tuple[Step, str]]:
        """Its steps in order, each with its role."""
        yield from ((step, "skip") for step in self.skip)
        for part in self.branch:
            steps = part.steps if isinstance(part, Together) else (part,)
            yield from ((step, "parallel" if isinstance(part, Together) else "branch") for step in steps)
        yield from ((step, "after") for step in self.after)


@dataclass(frozen=True)
class Layer:
    """Layers of a stack that do the same.

    Attributes:
        items: Steps of one of them, from its input to its output.
        repeats: How often it is applied.
        where: Which layers of the stack they are, where others do something else.
    """

    items: tuple[Step | Residual, ...]
    repeats: int
    where: str = ""


@dataclass(frozen=True)
class Block:
    """A stack: what comes before its layers, its layers, what comes after.

    Attributes:
        name: "encoder" or "decoder".
        before: From token ids to the residual stream.
        layers: A layer of every kind, in the order in which they first occur.
        after: From the residual stream to the stack's output.
        remark: In which order layers of several types follow each other, or that they are one.
        quirks: Names of the quirks that change how the layers are repeated.
    """

    name: str
    before: tuple[Step, ...]
    layers: tuple[Layer, ...]
    after: tuple[Step, ...]
    remark: str = ""
    quirks: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Step | Residual, ...]:
        """Steps of its layers, one layer of every kind."""
        return tuple(item for layer in self.layers for item in layer.items)

    def steps(self) -> Iterator[Step]:
        """All steps, in the order of the drawing."""
        yield from (*self.before, *(step for step, _ in roles(self.items)), *self.after)


@dataclass(frozen=True)
class Drawing(Printed):
    """A model.

    Attributes:
        name: The variant's name with its settings.
        task: Task of the model.
        blocks: Its stacks, the encoder first.
        head: From the last stack's output to the model's.
        rules: Behaviour of the variant that is no module, e.g. how it makes its masks.
    """

    name: str
    task: str
    blocks: tuple[Block, ...]
    head: tuple[Step, ...]
    rules: tuple[Step, ...] = ()

    def shown(self) -> Iterator[Part]:
        from .svg import to_svg  # which imports this
        from .text import to_text

        yield Picture(to_svg(self), to_text(self))

    def steps(self) -> Iterator[Step]:
        """All steps, in the order of the drawing."""
        yield from (*(step for block in self.blocks for step in block.steps()), *self.head, *self.rules)

    def with_details(self, words: Mapping[str, str]) -> Drawing:
        """Another drawing, with additions to the details of steps by their place in the model."""

        def more(step: Step) -> Step:
            detail = ", ".join(filter(None, (step.detail, words.get(step.path, ""))))
            return dataclasses.replace(step, detail=detail)

        drawing: Drawing = with_steps(self, more)
        return drawing

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def roles(items: Iterable[Step | Residual]) -> Iterator[tuple[Step, str]]:
    for item in items:
        yield from ((item, "stream"),) if isinstance(item, Step) else item.roles()


def notes_of(steps: Iterable[Step]) -> list[str]:
    """Descriptions of the variant's own parts, after the labels of their steps."""
    labels: dict[str, dict[str, None]] = {}
    for step in steps:
        if step.note:
            labels.setdefault(step.note, {})[step.label] = None
    return [f"{', '.join(names)}: {note}" for note, names in labels.items()]


def with_steps(item: Any, change: Callable[[Step], Step]) -> Any:
    """A part of a drawing, or a tuple of parts, with changed steps."""
    if isinstance(item, Step):
        return change(item)
    if isinstance(item, tuple):
        return tuple(with_steps(one, change) for one in item)
    if not isinstance(item, (Drawing, Block, Layer, Residual, Together)):
        return item
    inner = {field.name: with_steps(getattr(item, field.name), change) for field in dataclasses.fields(item)}
    return dataclasses.replace(item, **inner)
