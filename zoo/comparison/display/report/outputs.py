"""Outputs and their references, with wrong words marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from ...results.comparison import Comparison
from ...run.record import Run
from ..examples import chosen_examples, shortened, shown_runs

EXAMPLES = 12
MOST_WORDS = 200
"""Beyond which words are not compared: a document is not a sentence."""


@dataclass(frozen=True)
class Piece:
    """Some words of an output, and whether the reference has them there."""

    text: str
    is_right: bool


@dataclass(frozen=True)
class Output:
    """A variant's output for an example; `others` of `seeds` seeds wrote the same."""

    place: int
    name: str
    seed: int
    pieces: list[Piece]
    is_right: bool
    others: int
    seeds: int


@dataclass(frozen=True)
class Example:
    """An example, numbered by its place in the data from 1, with an output a variant."""

    number: int
    source: str
    reference: str
    outputs: list[Output]


def examples_of(comparison: Comparison, count: int = EXAMPLES) -> list[Example]:
    """Choose examples, half of them with different outputs, and put all outputs next to each other."""
    finished = shown_runs(comparison)
    return [
        Example(
            place + 1,
            shortened(comparison.sources[place]),
            shortened(comparison.references[place]),
            [output(comparison, run, place) for run in finished],
        )
        for place in chosen_examples(comparison, finished, count)
    ]


def output(comparison: Comparison, run: Run, place: int) -> Output:
    """Compare what a run wrote for the example at this place with what it should have written."""
    reference = comparison.references[place]
    written = [other.outputs[place] for other in comparison.runs_of(run.name) if other.outputs]
    text = run.outputs[place]
    return Output(
        comparison.names.index(run.name),
        run.name,
        run.seed,
        list(pieces(shortened(text), shortened(reference))),
        text == reference,
        Counter(written)[text],
        len(written),
    )


def pieces(text: str, reference: str) -> Iterator[Piece]:
    """Tell the words of a text that its reference has in the same order from those that it has not."""
    words, right = text.split(), reference.split()
    if len(words) > MOST_WORDS:
        yield Piece(text, text == reference)
        return
    matcher = SequenceMatcher(None, right, words, autojunk=False)
    for kind, _, _, start, end in matcher.get_opcodes():
        if end > start:
            yield Piece(" ".join(words[start:end]), kind == "equal")
