"""Views of the explorer: functions of models and a text; their results also print in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from zoo.analysis.diff import diff, resolve_both
from zoo.analysis.drawing import Drawing, draw, to_svg_beside
from zoo.analysis.drawing import compare as compare_drawings
from zoo.base.printed import Note, Part, Picture, Table, Title
from zoo.converters.weights import task_of
from zoo.inside import attention, logit_lens
from zoo.inside.layers import Shape, shape_text
from zoo.inside.layers import shapes_of as shapes_in
from zoo.inside.show import show
from zoo.inside.texts import inputs_of
from zoo.registry import VARIANTS, Task
from zoo.training.generation import generate
from zoo.training.predict import Label, guesses, predict

from .models import Explored, explored, with_quirks

GUESSES = 5  # How many words are shown for a mask
QUIET = frozenset({"dropout", "scale"})  # Sorts of steps that leave shapes as they are


def outputs(names: Sequence[str], text: str) -> Iterator[Part]:
    yield Table([(name, answer(explored(name), text)) for name in names], ("", "output"))


def answer(one: Explored, text: str) -> str:
    """Output of a model for a text: what it writes, its label, or its guesses for masks."""
    task = task_of(one.model)
    if task in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM):
        (written,) = generate(one.model, [text], tokenizer=one.tokenizers)
        return written.candidates[0].text
    if task in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION):
        (label,) = predict(one.model, [text], tokenizer=one.tokenizers)
        return "\n".join(f"{word.text}: {label_text(word)}" for word in label.words) or label_text(label)
    return guessed(one, text) if task == Task.MASKED_LM else "makes vectors of it, and no words"


def label_text(label: Label) -> str:
    return f"{label.label}{'' if label.score is None else f' ({label.score:.1%})'}"


def guessed(one: Explored, text: str) -> str:
    """Predictions of a masked language model at the masks."""
    (masks,) = guesses(one.model, one.tokenizers, [text], GUESSES)
    lines = [", ".join(f"{word} ({share:.0%})" for word, share in best) for best in masks]
    return "\n".join(lines) or f"predicts the token at {one.tokenizers.source.mask_token}: write one"


def heads(name: str, text: str) -> Iterator[Part]:
    one = explored(name)
    yield from dataclasses.replace(attention(one.model, text, tokenizer=one.tokenizers), name=name).shown()


def layers(name: str, text: str) -> Iterator[Part]:
    one = explored(name)
    yield Title(name)
    if one.model.can_generate():
        yield from logit_lens(one.model, text, tokenizer=one.tokenizers).shown()
    else:
        yield Note("predicts no next token, so its layers have no predictions to show.")


def drawn(name: str, text: str) -> Iterator[Part]:
    """A model's drawing with the shapes of what passes through it when it reads a text."""
    one = explored(name)
    yield Title(name, f"{one.model.num_parameters():,} parameters; shapes are tokens × features")
    yield from drawing_of(one, text).shown()


def drawing_of(one: Explored, text: str) -> Drawing:
    drawing = show(one.model).drawing
    shapes = shapes_of(one, text)
    loud = {step.path for step in drawing.steps() if step.kind not in QUIET}
    return drawing.with_details({path: f"→ {shape_text(shape)}" for path, shape in shapes.items() if path in loud})


def shapes_of(one: Explored, text: str, target: str | None = None) -> dict[str, Shape]:
    """Shapes of what a model's modules return for a text, without the batch, by path."""
    inputs = inputs_of(one.model, one.tokenizers, [text], None if target is None else [target])
    found = shapes_in(one.model, inputs.arguments)
    return {path: returned[1:] for path, (_, returned) in found.items() if returned is not None}


def quirks_of(name: str) -> dict[str, str]:
    """The defects of the original that a model's variant knows, and what each does."""
    known = VARIANTS.get(explored(name).model.config.variant).quirks
    return {quirk: one.description for quirk, one in known.items()}


def quirky(name: str, quirks: Sequence[str], text: str) -> Iterator[Part]:
    """Differences between a model and the same weights with quirks: outputs and architecture."""
    one = explored(name)
    known = quirks_of(name)
    if not known:
        yield Note(f"{one.model.config.variant} has no quirks: nothing is known to be wrong with its original.")
        return
    other = with_quirks(one, tuple(quirks))
    mine = " + ".join(one.model.config.quirks) or "as it was trained"
    rows = [(mine, answer(one, text)), (" + ".join(quirks) or "without quirks", answer(other, text))]
    yield Title(name, "the same weights, computed in two ways")
    yield Table(rows, ("", "output"))
    yield Table([(quirk, known[quirk]) for quirk in quirks])
    yield side_by_side(show(one.model).drawing, show(other.model).drawing)


def variants(a: str, b: str) -> Iterator[Part]:
    """In what two variants differ, in words and drawn."""
    tasks = resolve_both(a, b)[1]
    yield from diff(a, b).shown()
    yield side_by_side(draw(a, tasks[0]), draw(b, tasks[1]))


def side_by_side(a: Drawing, b: Drawing) -> Picture:
    words = "\n".join(compare_drawings(a, b).words) or "They are drawn alike."
    return Picture(to_svg_beside(a, b), words)
