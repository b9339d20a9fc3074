"""Token classification: a label a token, as of named entities or parts of speech."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import pieces_of

from .encoding import encoded
from .labels import LabelsTask
from .predictions import Outputs, Predictions
from .scores import Score
from .tables import Kind
from .task import TASKS

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class TokenClassification(LabelsTask):
    """Tokens and their labels; F1 of entities (of labels, where they mark none) and accuracy say how many are found.

    A token that the tokenizer cuts into pieces has its label on the first of them; the others do not count.
    """

    name = "token-classification"
    model_tasks = ("token-classification",)
    kinds = (Kind.TOKENS, Kind.TAGS)
    main_score = "f1"
    scored_by = Outputs.PREDICTED

    def labels_of(self, column: Iterable[Any]) -> Iterable[str]:
        """The labels of all tokens. Arguments as in the base class."""
        return chain.from_iterable(column)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        """Turn tokens into ids, and labels into numbers. Arguments as in the base class."""
        from zoo.fast.chunked_loss import IGNORED

        tokenizer = tokenizers.source
        ending = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        rows: list[list[int]] = []
        labels: list[list[int]] = []
        pairs = zip(*(examples[name][:] for name in examples.column_names[:2]), strict=True)
        for place, (tokens, tags) in enumerate(pairs):
            filled = pieces_of(tokenizer, tokens)
            numbers = [self.number(tag, examples, place) for tag in tags]
            row = [*chain.from_iterable(filled), *ending]
            marks = [[number] + [IGNORED] * (len(ids) - 1) for number, ids in zip(numbers, filled, strict=True)]
            rows.append(row[: self.max_length])
            labels.append([*chain.from_iterable(marks), *([IGNORED] * len(ending))][: self.max_length])
        columns = {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "labels": labels,
            "length": [len(row) for row in rows],
        }
        return encoded(columns, examples)

    def collator(self, tokenizers: Tokenizers) -> Callable[[Any], dict[str, Any]]:
        """Make transformers' collator for labelled tokens. Arguments as in the base class."""
        from transformers import DataCollatorForTokenClassification

        return DataCollatorForTokenClassification(tokenizers.source)

    def sources(self, examples: Dataset) -> list[str]:
        """The tokens, with blanks between them. Arguments as in the base class."""
        return [" ".join(tokens) for tokens in examples[examples.column_names[0]][:]]

    def references(self, examples: Dataset) -> list[str]:
        """The labels, with blanks between them. Arguments as in the base class."""
        return [" ".join(tags) for tags in examples[examples.column_names[1]][:]]

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        """The labels' names, with blanks between them. Arguments as in the base class."""
        return [" ".join(self.named(row)) for row in ids]

    def named(self, ids: Iterable[int]) -> list[str]:
        """Name labels."""
        return [self.labels[number] for number in ids]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """F1 and accuracy. Arguments as in the base class."""
        from .metrics import accuracy_score, entity_f1_score, has_entities, macro_f1_score

        answers, labels = predictions.ids, predictions.labels
        if has_entities(self.labels):
            named = [[self.named(row) for row in rows] for rows in (answers, labels)]
            found = entity_f1_score(*named, n_bootstrap=n_bootstrap)
        else:
            found = macro_f1_score(answers, labels, len(self.labels), n_bootstrap=n_bootstrap)
        return {"f1": found, "accuracy": accuracy_score(answers, labels, n_bootstrap=n_bootstrap)}


TASKS.register(TokenClassification.name, TokenClassification())
