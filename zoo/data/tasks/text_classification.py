"""Text classification: a label a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import to_ids

from .encoding import encoded
from .labels import LabelsTask
from .predictions import Outputs, Predictions
from .scores import Score
from .tables import Kind
from .task import TASKS

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class TextClassification(LabelsTask):
    """Texts and their labels; accuracy and the mean F1 of the labels say how many are found."""

    name = "text-classification"
    model_tasks = ("sequence-classification",)
    kinds = (Kind.TEXT, Kind.LABEL)
    main_score = "accuracy"
    scored_by = Outputs.PREDICTED

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        """Turn texts into ids, and labels into numbers. Arguments as in the base class."""
        ids = [row[: self.max_length] for row in to_ids(tokenizers.source, self.sources(examples))]
        columns = {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            "labels": [self.number(label, examples, row) for row, label in enumerate(self.references(examples))],
            "length": [len(row) for row in ids],
        }
        return encoded(columns, examples)

    def collator(self, tokenizers: Tokenizers) -> Callable[[Any], dict[str, Any]]:
        """Make transformers' collator for texts. Arguments as in the base class."""
        from transformers import DataCollatorWithPadding

        return DataCollatorWithPadding(tokenizers.source)

    def sources(self, examples: Dataset) -> list[str]:
        """The first column. Arguments as in the base class."""
        return examples[examples.column_names[0]][:]

    def references(self, examples: Dataset) -> list[str]:
        """The second column. Arguments as in the base class."""
        return examples[examples.column_names[1]][:]

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        """The labels' names. Arguments as in the base class."""
        return [self.labels[int(row[0])] for row in ids]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Accuracy and F1. Arguments as in the base class."""
        from .metrics import accuracy_score, macro_f1_score

        answers, labels = predictions.ids, predictions.labels
        return {
            "accuracy": accuracy_score(answers, labels, n_bootstrap=n_bootstrap),
            "f1": macro_f1_score(answers, labels, len(self.labels), n_bootstrap=n_bootstrap),
        }


TASKS.register(TextClassification.name, TextClassification())
