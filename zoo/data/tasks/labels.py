"""Labels: their numbers, and models that know them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from zoo.base.errors import ConfigError, DataError, enumerate_names, suggest
from zoo.data.tokenizers import Tokenizers, train_tokenizers

from .encoding import check_length
from .mapped import texts_of, values_of
from .sources import Splits
from .tables import Table, place_of
from .task import DataTask

if TYPE_CHECKING:
    from datasets import Dataset

FEW_LABELS = 8
"""Different labels that are never too many, however few examples there are."""


@dataclass(frozen=True)
class LabelsTask(DataTask):
    """What tasks have in common whose answers are labels."""

    labels: tuple[str, ...] = ()  # The labels in the order of their ids; by default those in the data, sorted
    max_length: int | None = None  # Number of tokens after which a text is cut

    def __post_init__(self) -> None:
        check_length(self.max_length)
        if not isinstance(self.labels, (list, tuple)):
            raise ConfigError(f"labels={self.labels!r} is not valid; it is a list, such as ['neg', 'pos']")
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))

    def labels_of(self, column: Iterable[Any]) -> Iterable[str]:
        """Find the labels of examples."""
        return column

    def fitted(self, splits: Splits) -> Self:
        """Find out which labels there are. Arguments as in the base class."""
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
        """Take the labels that a model knows. Arguments as in the base class."""
        return replace(self, labels=tuple(config.id2label[i] for i in range(len(config.id2label))))

    def mismatch(self, train: Table, heldout: Table) -> str | None:
        """Look for labels that are never trained on. Arguments as in the base class."""
        known = self.labels or sorted_labels(set(self.labels_of(train.column(1))))
        whose = "the labels that were trained on" if self.labels else train.source
        for row, value in enumerate(heldout.column(1)):
            for label in self.labels_of([value]):
                if label not in known:
                    return (
                        f"{heldout.place(row)}: label {label!r} is not in {whose}; "
                        f"valid: {enumerate_names(known)}{suggest(label, known)}"
                    )
        return None

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        """How often every label occurs. Arguments as in the base class."""
        return dict(Counter(self.labels_of(values_of(examples, examples.column_names[1]))))

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train a tokenizer on the texts. Arguments as in the base class."""
        return train_tokenizers(texts_of(self.sources, examples), **options)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Vocabulary, special tokens and labels. Arguments as in the base class."""
        tokenizer = tokenizers.source
        return {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: number for number, label in enumerate(self.labels)},
        }

    def number(self, label: str, examples: Dataset, row: int) -> int:
        """Look a label up."""
        if label not in self.labels:
            raise DataError(
                f"{place_of(examples, row) or 'the data'}: label {label!r} is unknown; valid: "
                f"{enumerate_names(self.labels)}{suggest(label, self.labels)}"
            )
        return self.labels.index(label)


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Order labels."""
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))
