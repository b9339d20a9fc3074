"""Parts of a model for the page: formula, shape, and line in the ejected file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from zoo.analysis.drawing.parts import Step
from zoo.analysis.eject.ejecting import text_of
from zoo.base.errors import ZooError
from zoo.converters.weights import task_of
from zoo.inside.explorer.models import Explored
from zoo.inside.explorer.views import shapes_of
from zoo.inside.show import show
from zoo.models import ZooPreTrainedModel
from zoo.models.attention import attention_scaling

PROBE, TARGET_PROBE = "a b c d e f g h i j k l m n o", "a b c d e f g h i j k l m"
"""Texts, long enough that their numbers of tokens are the sizes of nothing else."""

SOURCE, TARGET = "source", "target"
"""Sizes of a shape that are the number of tokens of a text."""

SILENT = frozenset({"dropout", "scale", "rule"})
"""Kinds of steps that do nothing outside of training, or are no module."""


@dataclass(frozen=True)
class PagePart:
    """A part of a model.

    Attributes:
        path: Its place in the model; of parts in a layer, in the first one.
        label: Its kind, e.g. "causal self-attention".
        detail: Its sizes.
        formula: What it computes.
        shape: Of its output: numbers, "source" or "target" for the number of tokens; empty if it is not known.
        line: Where it begins in the ejected file, from 1; None if the file has no such part.
        stack: "encoder", "decoder" or "head".
    """

    path: str
    label: str
    detail: str
    formula: str
    shape: tuple[int | str, ...]
    line: int | None
    stack: str


def parts_of(one: Explored, code: str) -> list[dict[str, Any]]:
    """List the parts of a model in the order of its drawing.

    Args:
        code: The ejected file, empty if there is none.
    """
    drawing = show(one.model).drawing
    places = [(block.name, step) for block in drawing.blocks for step in steps_of_block(block)]
    places += [("head", step) for step in drawing.head]
    shapes = named_shapes(one)
    lines = Lines(code)
    return [
        asdict(
            PagePart(
                step.path,
                step.label,
                step.detail,
                formula_of(step, one.model),
                shapes.get(step.path, ()),
                lines.find(step.path, stack),
                stack,
            )
        )
        for stack, step in places
        if step.kind not in SILENT
    ]


def steps_of_block(block: Any) -> Iterator[Step]:
    """Steps of one stack."""
    from zoo.analysis.drawing.parts import steps_of

    yield from block.before
    for item in block.items:
        yield from steps_of(item)
    yield from block.after


def named_shapes(one: Explored) -> dict[str, tuple[int | str, ...]]:
    """Shapes of what modules return, with the numbers of tokens by name."""
    from zoo.inside.texts import inputs_of

    target = TARGET_PROBE if one.model.config.is_encoder_decoder else None
    given = inputs_of(one.model, one.tokenizers, [PROBE], None if target is None else [target]).arguments
    names = {tensor.shape[1] for name, tensor in given.items() if name.endswith("input_ids")}
    named = {}
    for path, shape in shapes_of(one, PROBE, target).items():
        own = TARGET if path == "lm_head" or ".decoder" in path else SOURCE
        named[path] = tuple(own if size in names else size for size in shape)
    return named


def formula_of(step: Step, model: ZooPreTrainedModel) -> str:
    """What a step computes, in one line; nothing where its own words say it."""
    label, config = step.label, model.config
    scale = attention_scaling(config)
    divided = "" if scale == 1 else f" / √{round(scale**-2)}"
    mask = " + causal mask" if "causal" in label else ""
    bias = " + bias(i − j)" if config.position == "t5" else ""
    by_kind = {
        "embedding": f"x = E[token]{f' · √{config.hidden_size}' if config.scale_embedding else ''}",
        "position": "x + P[position]"
        if "learned" in label
        else "x + PE;  PE[p, 2i] = sin(p / 10000^(2i/d)),  PE[p, 2i+1] = cos(p / 10000^(2i/d))",
        "attention": f"softmax(Q Kᵀ{divided}{bias}{mask}) V Wₒ;  Q = x W_q, K = x W_k, V = x W_v",
        "cross-attention": f"softmax(Q Kᵀ{divided}) V Wₒ;  Q = x W_q, K = m W_k, V = m W_v, m = encoder's output",
        "linear": "x Wᵀ + b" if "bias" in step.detail else "x Wᵀ",
    }
    if step.kind == "norm":
        return "g · x / √(mean(x²) + ε)" if "RMS" in label else "g · (x − mean(x)) / √(var(x) + ε) + b"
    if step.kind == "feed-forward":
        act = config.hidden_act
        return f"({act}(x W_g) · x W₁) W₂" if "gated" in label else f"{act}(x W₁ + b₁) W₂ + b₂"
    if step.kind == "inner-position":
        return "q, k rotated by position · θ^(−2i/d)" if "rotary" in label else "scores + bias(bucket(i − j))"
    if "pooling" in label:
        return {"cls": "h[0]", "max": "max over tokens of h", "mean": "mean over tokens of h", "last": "h[last]"}.get(
            label.split()[0], ""
        )
    return by_kind.get(step.kind, "")


def ejected(model: ZooPreTrainedModel, name: str) -> str:
    """The model as one file, empty if a part has no plain form."""
    try:
        return text_of(model.config, task_of(model), name)
    except ZooError:
        return ""


class Lines:
    """Finds modules in an ejected file.

    Args:
        code: The file.
    """

    def __init__(self, code: str) -> None:
        tree = ast.parse(code)
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.members = {name: dict(assigned(node, self.classes)) for name, node in self.classes.items()}

    def find(self, path: str, stack: str) -> int | None:
        """The line on which the class of a module begins, or else on which the module is made.

        Args:
            path: Its place in the model.
            stack: "encoder", "decoder" or "head".
        """
        names = [name for name in path.split(".") if not name.isdigit()]
        found = [self.follow(start, names) for start in self.classes]
        return next((line for line in found if line is not None), None)

    def follow(self, start: str, names: list[str]) -> int | None:
        """Go from class to class by names of attributes."""
        here: str | None = start
        line = None
        for name in names:
            if here is None or name not in self.members[here]:
                return None
            line, here = self.members[here][name]
        return self.classes[here].lineno if here is not None else line


def assigned(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[tuple[str, tuple[int, str | None]]]:
    """Attributes that a class sets: the line, and the class of the file that it makes there, if any."""
    for statement in ast.walk(node):
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                made = [
                    call.func.id
                    for call in ast.walk(statement.value)
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in classes
                ]
                yield target.attr, (statement.lineno, made[0] if made else None)
