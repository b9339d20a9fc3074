"""Error analysis: examples with gold and predicted outputs, confusion matrix, scores of every label, worst examples."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from jinja2 import StrictUndefined, Template

from zoo.base.errors import enumerate_names
from zoo.base.files import write_file
from zoo.data.tasks import DataTask, Predictions
from zoo.data.tasks.metrics import f1

TEMPLATE = Path(__file__).with_name("report.html.jinja")
COLUMNS = ("text", "gold", "prediction", "probability")
MOST_WORST = 50  # Examples that the page shows; the table has all
MOST_LABELS_DRAWN = 60  # Largest number of labels for which the page shows a confusion matrix; the table has all


@dataclass(frozen=True)
class Answer:
    """An example with a model's output."""

    text: str
    gold: str
    prediction: str  # The model's answer
    # The probability of the prediction, of several labels that of the least probable; None for generated text
    probability: float | None = None
    ids: tuple[int, ...] = ()  # Of predicted labels, their ids
    gold_ids: tuple[int, ...] = ()

    @property
    def row(self) -> tuple[str, ...]:
        return self.text, self.gold, self.prediction, "" if self.probability is None else f"{self.probability:.4f}"


def answers_of(task: DataTask, examples: Dataset, predictions: Predictions) -> Iterator[Answer]:
    sources, golds = task.sources(examples), task.references(examples)
    if not golds or not len(sources) == len(golds) == len(predictions.outputs):
        return
    missing: list[Sequence[Any]] = [()] * len(sources)
    details = (each or missing for each in (predictions.ids, predictions.labels, predictions.probabilities))
    for text, gold, output, ids, labels, found in zip(sources, golds, predictions.outputs, *details, strict=True):
        lowest = float(min(found)) if len(found) else None
        yield Answer(text, gold, output, lowest, tuple(map(int, ids)), tuple(map(int, labels)))


def table_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], suffix: str = ".csv") -> str:
    """Write a table as CSV, as TSV without quotes, or as a JSON object a line."""
    if suffix == ".jsonl":
        return "".join(f"{json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)}\n" for row in rows)
    if suffix == ".tsv":
        return "".join("\t".join(" ".join(str(value).split()) for value in row) + "\n" for row in [columns, *rows])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([columns, *rows])
    return written.getvalue()


def write_answers(file: Path, answers: Sequence[Answer], outputs: Sequence[str]) -> None:
    """Write answers to a file: a table where its suffix is .csv, .tsv or .jsonl, else the predictions, one a line."""
    suffix = file.suffix.lower()
    if suffix in (".csv", ".tsv", ".jsonl"):
        write_file(file, table_text(COLUMNS, (answer.row for answer in answers), suffix))
    else:
        write_file(file, "".join(f"{' '.join(text.split())}\n" for text in outputs))


def scores_by_label(confusion: npt.NDArray[np.int64], labels: Sequence[str]) -> list[tuple[str, int, str, str, str]]:
    """Precision, recall and F1 of every label."""
    right, predicted, true = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    means = (right / np.maximum(predicted, 1), right / np.maximum(true, 1))
    scores = (*means, f1(np.stack([right, predicted, true], axis=-1)))
    columns = ([f"{100 * value:.2f}" for value in score] for score in scores)
    return list(zip(labels, true.tolist(), *columns, strict=True))


def write_report(folder: Path, title: str, answers: Sequence[Answer], labels: Sequence[str]) -> list[Path]:
    """Write what a classifier gets wrong: report.html, confusion.csv, labels.csv and errors.csv."""
    confusion = np.zeros((len(labels), len(labels)), np.int64)  # counts of (gold, predicted) labels
    for answer in answers:
        np.add.at(confusion, (list(answer.gold_ids), list(answer.ids)), 1)
    wrong = [one for one in answers if one.ids != one.gold_ids]
    errors = sorted(wrong, key=lambda one: one.probability or 0, reverse=True)
    tables: dict[str, tuple[Sequence[str], list[Sequence[Any]]]] = {
        "confusion": (
            ("gold \\ predicted", *labels),
            [(a, *row) for a, row in zip(labels, confusion.tolist(), strict=True)],
        ),
        "labels": (("label", "examples", "precision", "recall", "F1"), list(scores_by_label(confusion, labels))),
        "errors": (COLUMNS, [answer.row for answer in errors]),
    }
    files = {folder / f"{name}.csv": table_text(*made) for name, made in tables.items()}
    tables["errors"] = (COLUMNS, tables["errors"][1][:MOST_WORST])
    if len(labels) > MOST_LABELS_DRAWN:
        del tables["confusion"]
    headings = {"confusion": "Confusion matrix", "labels": "Scores of every label", "errors": "Worst examples"}
    summary = f"{len(errors):,} of {len(answers):,} examples are wrong. Labels: {enumerate_names(labels)}."
    shown = [(headings[name], *made) for name, made in tables.items()]
    template = Template(TEMPLATE.read_text(encoding="utf-8"), autoescape=True, undefined=StrictUndefined)
    files[folder / "report.html"] = template.render(title=title, summary=summary, tables=shown) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_file(file, text)
    return list(files)
