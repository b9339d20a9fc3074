"""Compression: a whole sequence in one vector, from which every symbol is predicted again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.base.errors import ConfigError, DataError
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import to_ids

from ..encoding import short_rows
from ..scores import Outputs
from ..task import register_task
from ..text_task import with_labels
from .task import Synthetic

if TYPE_CHECKING:
    from datasets import Dataset


@register_task
@dataclass(frozen=True)
class Compression(Synthetic):
    """Tell every symbol of `3 1 2` by the vector of the end that follows (Poli et al. 2024, MAD, section 3.1).

    The model is a classifier of sequences with `classifier_positions`, which has no other way to the symbols.
    """

    name = "compression"
    model_tasks = ("sequence-classification",)
    main_score = "symbol_accuracy"
    options_for: ClassVar[Mapping[str, str]] = {}
    collator_class = "DataCollatorWithPadding"
    separated = False
    unread = ("min_length",)

    num_symbols: int = 16
    length: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_only:
            raise ConfigError(f"task {self.name!r} is for classifiers of sequences, so decoder_only must be false")

    @property
    def outputs(self) -> Outputs:
        """A symbol is predicted for every position."""
        return Outputs.PREDICTED

    def example(self, generator: random.Random) -> tuple[Sequence[str], Sequence[str]]:
        symbols = [str(generator.randrange(self.num_symbols)) for _ in range(self.length)]
        return symbols, symbols

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        return train_tokenizers(self.sources(examples), **options)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        ids = to_ids(tokenizers.source, self.sources(examples))
        if any(len(row) != self.length + 1 for row in ids):
            raise DataError(f"task {self.name!r} needs a token a symbol, as the tokenizer 'word' makes them")
        labels = [list(map(int, answer.split())) for answer in self.references(examples)]
        return short_rows(ids, labels, self.max_length if training else None, examples)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Vocabulary, special tokens, and the labels that are read from the last token's vector."""
        labels = with_labels(tokenizers, list(map(str, range(self.num_symbols))))
        return {**labels, "classifier_positions": self.length, "classifier_pooling": "last"}

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        return [" ".join(str(int(symbol)) for symbol in row) for row in ids]
