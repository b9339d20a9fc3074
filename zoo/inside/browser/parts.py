"""Parts of a model for the page: formula, shape, and line in the ejected file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
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

SOURCE, TARGET = "source", "target"  # Sizes of a shape that are the number of tokens of a text
SILENT = frozenset({"dropout", "scale", "rule"})  # Kinds of steps that do nothing outside of training, or are no module
UNMASKED, STEP_ZERO = "padding-is-attended", "every-step-is-position-zero"  # Quirks of several parts

FUNCTIONS = {"sinusoidal positions": "sinusoids", "rotary positions": "rotary", "pooling": "pooled"}
"""Functions of an ejected file that compute parts without a module, by the end of the part's label."""


Shapes = dict[str, tuple[int | str, ...]]


def parts_of(model: ZooPreTrainedModel, code: str, shapes: Shapes) -> list[dict[str, Any]]:
    """List the parts of a model in the order of its drawing; `code` is the ejected file, empty without one."""
    drawing = show(model).drawing
    places = [(block.name, step, block.quirks) for block in drawing.blocks for step in block.steps()]
    places += [("head", step, ()) for step in drawing.head]
    lines = Lines(code)
    borrowers = {step.lender: step.path for _, step, _ in places if step.lender}

    def anywhere(find: Callable[[str], Any], step: Step) -> Any:
        """Look a step up by the path of its module, or of one that shares weights with it."""
        return next(filter(None, map(find, (step.path, step.lender, borrowers.get(step.path, "")))), None)

    return [
        {
            "path": step.path,  # of parts in a layer, in the first one
            "label": step.label,
            "detail": step.detail,
            "formula": formula_of(step, model),
            # Of its output: numbers, "source" or "target" for the number of tokens; empty if it is not known
            "shape": anywhere(shapes.get, step) or (),
            # Where it begins in the ejected file, from 1; None if the file has no such part
            "line": anywhere(lines.find, step) or lines.function(step.label),
            "stack": stack,  # or "head"
            "quirks": quirks_of(step, model, stack) + (quirks if ".layers." in step.path else ()),
        }
        for stack, step, quirks in places
        if step.kind not in SILENT
    ]


def quirks_of(step: Step, model: ZooPreTrainedModel, stack: str) -> tuple[str, ...]:
    """Quirks that change a step; the drawing has a padding mask that is not read as a rule of the whole model."""
    reads_no_mask = "attention" in step.kind and "causal" not in step.label and model.config.has_quirk(UNMASKED)
    own = tuple(quirk for quirk in step.quirks if quirk != STEP_ZERO or stack == "decoder")
    return (*own, *((UNMASKED,) if reads_no_mask else ()))


def named_shapes(one: Explored) -> Shapes:
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
    """Formula of a step, in one line; empty where its label is enough."""
    label, config = step.label, model.config
    if "attention" in step.kind:
        return attention_formula(step, model)
    if step.kind == "norm":
        return "g · x / √(mean(x²) + ε)" if "RMS" in label else "g · (x − mean(x)) / √(var(x) + ε) + b"
    if step.kind == "feed-forward":
        act = config.hidden_act
        if "gated" in label:
            return f"({act}(x W_g) · x W₁) W₂"
        return f"{act}(x W₁) W₂" if "no biases" in step.detail else f"{act}(x W₁ + b₁) W₂ + b₂"
    if step.kind == "position":
        if "learned" in label:
            return "x + P[position]"
        zero = "p = 0 in every step,  " if STEP_ZERO in step.quirks and ".decoder" in step.path else ""
        odd = "(2i+1)" if "cosines-have-own-exponents" in step.quirks else "2i"
        table = f"PE[p, 2i] = sin(p / 10000^(2i/d)),  PE[p, 2i+1] = cos(p / 10000^({odd}/d))"
        return f"x + PE;  {zero}{table}"
    if step.kind == "inner-position":
        return "q, k rotated by position · θ^(−2i/d)" if "rotary" in label else "scores + bias(bucket(i − j))"
    if "pooling" in label:
        most = "max over tokens and padding of h" if "max-pools-padding" in step.quirks else "max over tokens of h"
        return {"cls": "h[0]", "max": most, "mean": "mean over tokens of h", "last": "h[last]"}.get(
            label.split()[0], ""
        )
    by_kind = {
        "embedding": f"x = E[token]{f' · √{config.hidden_size}' if config.scale_embedding else ''}",
        "linear": "x Wᵀ + b" if "bias" in step.detail else "x Wᵀ",
    }
    return by_kind.get(step.kind, "")


def attention_formula(step: Step, model: ZooPreTrainedModel) -> str:
    config, quirks = model.config, step.quirks
    scale = attention_scaling(config)
    scores = "Q Kᵀ" if scale == 1 else f"Q Kᵀ / √{round(scale**-2)}"
    is_cross = step.kind == "cross-attention"
    if config.position == "t5" and not is_cross:
        scores += " + bias(i − j)"
    if "evaluation-sees-the-future" in quirks:
        scores += " + causal mask in training alone"
    elif "causal" in step.label:
        scores += " + causal mask"
    elif "decoder-sees-the-future" not in quirks and not config.has_quirk(UNMASKED):
        scores += " + padding mask"
    if "softmax-over-the-batch" in quirks:
        scores += ", over the batch"
    queries, keys, values = "xxx" if not is_cross else "mmx" if "memory-makes-queries" in quirks else "xmm"
    has_biases = "no biases" not in step.detail
    made = [
        f"{name} = {read} W_{name.lower()}" + f" + b_{name.lower()}" * has_biases
        for name, read in zip("QKV", (queries, keys, values), strict=True)
    ]
    memory = ["m = encoder's output"] * is_cross
    shared = ["all W of self-attention"] * ("cross-attention-reuses-self" in quirks)
    return f"softmax({scores}) V Wₒ{' + bₒ' * has_biases};  {', '.join([*made, *memory, *shared])}"


def ejected(model: ZooPreTrainedModel, name: str) -> str:
    """The model as one file, empty if a part has no plain form."""
    try:
        return text_of(model.config, task_of(model), name)
    except ZooError:
        return ""


class Lines:
    """Finds modules in an ejected file."""

    def __init__(self, code: str) -> None:
        tree = ast.parse(code)
        self.functions = {node.name: node.lineno for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.members = {name: dict(assigned(node, self.classes)) for name, node in self.classes.items()}

    def find(self, path: str) -> int | None:
        """The line on which the class of a module begins, or else on which the module at this place is made."""
        names = [name for name in path.split(".") if not name.isdigit()]
        found = [self.follow(start, names) for start in self.classes]
        return next((line for line in found if line is not None), None)

    def function(self, label: str) -> int | None:
        """The line of the function that computes a part without a module."""
        return next((self.functions.get(name) for end, name in FUNCTIONS.items() if label.endswith(end)), None)

    def follow(self, start: str, names: list[str]) -> int | None:
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
