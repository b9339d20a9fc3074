"""Tasks with labels: text classification, and token classification (a label a token, as of named entities)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from zoo.base.errors import DataError, enumerate_names, suggest
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import frame_of, pieces_of, to_ids

from .mapped import texts_of, values_of
from .scores import Outputs, Predictions, Score
from .sources import Splits
from .tables import Kind, Table, encoded, place_of
from .task import DataTask, register_task
from .text_task import with_labels

if TYPE_CHECKING:
    from datasets import Dataset


FEW_LABELS = 8  # Number of different labels that is accepted with any number of examples


@dataclass(frozen=True)
class LabelsTask(DataTask):
    """Base class of tasks with labels as answers."""

    labels: tuple[str, ...] = ()  # The labels in the order of their ids; by default those in the data, sorted
    max_length: int | None = None  # Number of tokens after which a text is cut

    def __post_init__(self) -> None:
        self.check_counts("max_length", unit="tokens")
        self.check_option("labels", isinstance(self.labels, (list, tuple)), "it is a list, such as ['neg', 'pos']")
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))

    def labels_of(self, column: Iterable[Any]) -> Iterable[str]:
        return column

    def fitted(self, splits: Splits) -> Self:
        if self.labels:
            return self
        self.check_labels(splits.train)
        columns = [values_of(split, split.column_names[1]) for split in splits]
        return replace(self, labels=sorted_labels({label for column in columns for label in self.labels_of(column)}))

    def check_labels(self, examples: Dataset) -> None:
        """Refuse a column that cannot hold labels, as where text and label are swapped."""
        text, label = examples.column_names[:2]
        labels = self.label_counts(examples)
        different, number = len(labels), sum(labels.values())
        if 1 < different <= max(FEW_LABELS, number / 2):
            return
        values = f"only the value {next(iter(labels))!r}" if different == 1 else f"{different:,} different values"
        raise DataError(
            f"{examples.info.description or 'the data'}: column {label!r} is read as the label, and has {values} "
            f"among {number:,}; there are at least two labels, and they recur. Name the column of the text and "
            f"that of the label, as in --columns {label},{text}"
        )

    def fitted_to(self, config: Any) -> Self:
        return replace(self, labels=tuple(config.id2label[i] for i in range(len(config.id2label))))

    def of_given(self, config: Any) -> Self:
        """The task with the labels of a model to train; one with transformers' names for labels takes the task's."""
        own = self.fitted_to(config)
        if own.labels != tuple(f"LABEL_{number}" for number in range(len(own.labels))):
            return own
        if len(own.labels) != len(self.labels):
            raise DataError(f"the model has {len(own.labels)} labels, and the data {len(self.labels)}: give num_labels")
        config.id2label = dict(enumerate(self.labels))
        config.label2id = {label: number for number, label in config.id2label.items()}
        return self

    def mismatch(self, train: Table, heldout: Table) -> str | None:
        known = self.labels or sorted_labels(set(self.labels_of(train.column(1))))
        owner = "the labels that were trained on" if self.labels else train.source
        for row, value in enumerate(heldout.column(1)):
            for label in self.labels_of([value]):
                if label not in known:
                    return (
                        f"{heldout.place(row)}: label {label!r} is not in {owner}; "
                        f"valid: {enumerate_names(known)}{suggest(label, known)}"
                    )
        return None

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        return dict(Counter(self.labels_of(values_of(examples, examples.column_names[1]))))

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        return train_tokenizers(texts_of(self.sources, examples), **options)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        return {**with_labels(tokenizers, self.labels), "num_labels": len(self.labels)}

    def rows(self, ids: list[list[int]], labels: Sequence[Any], examples: Dataset) -> Dataset:
        masks, lengths = [[1] * len(row) for row in ids], [len(row) for row in ids]
        return encoded({"input_ids": ids, "attention_mask": masks, "labels": labels, "length": lengths}, examples)

    def number(self, value: Any, examples: Dataset, row: int) -> int:
        if (label := str(value)) not in self.labels:
            problem = f"{place_of(examples, row) or 'the data'}: label {label!r} is unknown"
            raise DataError(f"{problem}; valid: {enumerate_names(self.labels)}{suggest(label, self.labels)}")
        return self.labels.index(label)


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))  # also of 1 and 01 in one order everywhere
    return tuple(sorted(labels))


@register_task
@dataclass(frozen=True)
class TextClassification(LabelsTask):
    """Texts and their labels, scored by accuracy and the mean F1 of the labels."""

    name = "text-classification"
    model_tasks = ("sequence-classification",)
    kinds = (Kind.TEXT, Kind.LABEL)
    collator_class = "DataCollatorWithPadding"
    main_score = "accuracy"
    scored_by = Outputs.PREDICTED

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        ids = [row[: self.max_length] for row in to_ids(tokenizers.source, self.sources(examples))]
        labels = [self.number(label, examples, row) for row, label in enumerate(self.references(examples))]
        return self.rows(ids, labels, examples)

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        return [self.labels[int(row[0])] for row in ids]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        from .metrics import accuracy_score, macro_f1_score

        answers, labels = predictions.ids, predictions.labels
        return {
            "accuracy": accuracy_score(answers, labels, n_bootstrap=n_bootstrap),
            "f1": macro_f1_score(answers, labels, len(self.labels), n_bootstrap=n_bootstrap),
        }


@register_task
@dataclass(frozen=True)
class TokenClassification(LabelsTask):
    """Tokens and their labels, scored by F1 of entities (of labels, where they mark none) and accuracy.

    A token that the tokenizer cuts into pieces has its label on the first of them; the others do not count.
    """

    name = "token-classification"
    model_tasks = ("token-classification",)
    kinds = (Kind.TOKENS, Kind.TAGS)
    collator_class = "DataCollatorForTokenClassification"
    main_score = "f1"
    scored_by = Outputs.PREDICTED

    def labels_of(self, column: Iterable[Any]) -> Iterable[str]:
        return chain.from_iterable(column)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        from zoo.fast.chunked_loss import IGNORED

        tokenizer = tokenizers.source
        before, after = frame_of(tokenizer, self.sources(examples.select([0]))[0])
        rows: list[list[int]] = []
        labels: list[list[int]] = []
        pairs = zip(*(examples[name][:] for name in examples.column_names[:2]), strict=True)
        for place, (tokens, tags) in enumerate(pairs):
            filled = pieces_of(tokenizer, tokens)
            numbers = [self.number(tag, examples, place) for tag in tags]
            row = [*before, *chain.from_iterable(filled), *after]
            marks = [[number] + [IGNORED] * (len(ids) - 1) for number, ids in zip(numbers, filled, strict=True)]
            rows.append(row[: self.max_length])
            ids = [*([IGNORED] * len(before)), *chain.from_iterable(marks), *([IGNORED] * len(after))]
            labels.append(ids[: self.max_length])
        return self.rows(rows, labels, examples)

    def sources(self, examples: Dataset) -> list[str]:
        return [" ".join(tokens) for tokens in examples[examples.column_names[0]][:]]

    def references(self, examples: Dataset) -> list[str]:
        return [" ".join(tags) for tags in examples[examples.column_names[1]][:]]

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        return [" ".join(self.named(row)) for row in ids]

    def named(self, ids: Iterable[int]) -> list[str]:
        return [self.labels[number] for number in ids]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        from .metrics import accuracy_score, entity_f1_score, has_entities, macro_f1_score

        answers, labels = predictions.ids, predictions.labels
        if has_entities(self.labels):
            named = [[self.named(row) for row in rows] for rows in (answers, labels)]
            found = entity_f1_score(*named, n_bootstrap=n_bootstrap)
        else:
            found = macro_f1_score(answers, labels, len(self.labels), n_bootstrap=n_bootstrap)
        scores = {"f1": found, "accuracy": accuracy_score(answers, labels, n_bootstrap=n_bootstrap)}
        tokens = sum(map(len, examples[examples.column_names[1]][:]))
        beyond = tokens - sum(map(len, labels))  # `max_length`: no score counts them
        note = f"|beyond max_length:{beyond}" if beyond else ""
        return {name: replace(score, signature=f"{score.signature}{note}") for name, score in scores.items()}
