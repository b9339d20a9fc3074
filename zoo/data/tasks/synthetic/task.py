"""Base class of synthetic tasks."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.base.errors import ConfigError, DataError
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import ended, to_ids

from ..encoding import short_rows
from ..pairs import PairsTask
from ..scores import Outputs, Predictions, Score
from ..sources import Splits
from ..tables import Column
from ..text_task import padding_of, single_vocabulary

if TYPE_CHECKING:
    from datasets import Dataset

TRIES = 100  # How often a new example is looked for before the space of examples is taken to be exhausted


@dataclass(frozen=True)
class Synthetic(PairsTask):
    """Random sequences of symbols, and the output of a rule for them. No held-out sequence is trained on."""

    model_tasks: ClassVar[tuple[str, ...]] = ("seq2seq-lm", "causal-lm")
    makes_examples = True
    main_score = "exact_match"
    recipe = "synthetic"
    # Whether a language model reads where the question ends, and predicts where the answer does
    separated: ClassVar[bool] = True
    unread: ClassVar[tuple[str, ...]] = ()  # Options that do not change the examples
    options_for: ClassVar[Mapping[str, str]] = {"seq2seq-lm": "decoder_only=false", "causal-lm": "decoder_only=true"}

    num_symbols: int = 10  # Number of different symbols
    min_length: int = 1  # Number of symbols in the shortest sequence
    length: int = 10  # Number of symbols in the longest sequence
    train_examples: int = 10_000  # Number of examples to train on
    heldout_examples: int = 500  # Number of examples to evaluate on
    data_seed: int = 0  # Which examples; runs of different seeds have the same
    # Whether the model is a causal language model, which reads question and answer as one sequence, instead of an
    # encoder-decoder. The question does not count in the loss.
    decoder_only: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("num_symbols", "min_length", "length", "train_examples", "heldout_examples")
        unread = (*self.unread, *(("cut",) if self.decoder_only else ()))
        self.refuse_given(unread, f"which changes nothing in the sequences of {self.name!r}; leave it out")
        if self.min_length > self.length:
            raise ConfigError(f"min_length={self.min_length} is above length={self.length}")

    @property
    def model_task(self) -> str:
        return "causal-lm" if self.decoder_only else self.model_tasks[0]

    @property
    def outputs(self) -> Outputs:
        """An encoder-decoder writes; a language model predicts each symbol of the answer after the right ones."""
        return Outputs.PREDICTED if self.decoder_only else Outputs.GENERATED

    @abstractmethod
    def example(self, generator: random.Random) -> tuple[Sequence[str], Sequence[str]]:
        """Make an example."""

    def symbols(self, generator: random.Random) -> list[int]:
        length = generator.randint(self.min_length, self.length)
        return [generator.randrange(self.num_symbols) for _ in range(length)]

    def load(
        self,
        data: str | Path | None = None,
        *,
        heldout: str | Path | None = None,
        columns: Sequence[Column] | None = None,
        seed: int = 0,
    ) -> Splits:
        if data is not None or heldout is not None or columns is not None:
            raise DataError(f"task {self.name!r} makes its own examples; options choose them: {self.name}:length=20")
        generator = random.Random(f"{self.name} {self.data_seed}")
        pairs: dict[str, str] = {}
        tries = 0
        while len(pairs) < self.train_examples + self.heldout_examples and tries < TRIES:
            question, answer = (" ".join(symbols) for symbols in self.example(generator))
            tries = tries + 1 if question in pairs else 0
            pairs[question] = answer
        rows = list(pairs.items())
        # With too few different examples, each part gets its share of them.
        share = self.heldout_examples / (self.train_examples + self.heldout_examples)
        aside = min(self.heldout_examples, max(1, round(share * len(rows))))
        if len(rows) < 2:
            raise DataError(f"task {self.name!r} has a single example with these options; give others")
        generator.shuffle(rows)
        return Splits(*(as_dataset(part) for part in (rows[aside:], rows[:aside])))

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        if not self.decoder_only:
            return super().train_tokenizers(examples, **options)
        return train_tokenizers([*self.sources(examples), *self.references(examples)], **options)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        from zoo.fast.chunked_loss import IGNORED

        if not self.decoder_only:
            return super().encode(examples, tokenizers, training=training, seed=seed)
        tokenizer = tokenizers.source
        between = [tokenizer.bos_token_id] if self.separated and tokenizer.bos_token_id is not None else []
        questions = [[*ids, *between] for ids in to_ids(tokenizer, self.sources(examples), add_special_tokens=False)]
        answers = to_ids(tokenizer, self.references(examples), add_special_tokens=self.separated)
        answers = ended(tokenizer, answers) if self.separated else answers
        pairs = list(zip(questions, answers, strict=True))
        inputs = [[*question, *answer][:-1] for question, answer in pairs]
        labels = [[IGNORED] * (len(question) - 1) + answer for question, answer in pairs]
        return short_rows(inputs, labels, self.max_length if training else None, examples)

    def collator(self, tokenizers: Tokenizers) -> Callable[[Any], dict[str, Any]]:
        from ..blocks import BlockCollator

        return BlockCollator(padding_of(tokenizers)) if self.decoder_only else super().collator(tokenizers)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        return single_vocabulary(tokenizers) if self.decoder_only else super().model_settings(tokenizers)

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        texts = tokenizers.source.batch_decode([list(map(int, row)) for row in ids], skip_special_tokens=True)
        return [text.strip() for text in texts]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Answers that are right as a whole, and symbols at their place."""
        import numpy as np

        from ..metrics import ratio, resampled

        if self.outputs == Outputs.PREDICTED:
            right = [np.equal(*row) for row in zip(predictions.ids, predictions.labels, strict=True)]
            whole = [(int(row.all()), 1) for row in right]
            by_symbol = [row[:-1] if self.separated else row for row in right]  # the end is no symbol
            counts = [(int(row.sum()), len(row)) for row in by_symbol]
            how = "predicted"
        else:
            texts = zip(predictions.outputs, self.references(examples), strict=True)
            counts = [matches(ours.split(), theirs.split()) for ours, theirs in texts]
            whole = [(int(right == there), 1) for right, there in counts]
            how = "generated"
        signature = f"n:{len(counts)}|{how}"
        return {
            "exact_match": resampled("Exact match", np.array(whole), ratio, signature, n_bootstrap=n_bootstrap),
            "symbol_accuracy": resampled(
                "Symbol accuracy", np.array(counts), ratio, signature, n_bootstrap=n_bootstrap
            ),
        }


def matches(output: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    right = sum(ours == theirs for ours, theirs in zip(output, reference, strict=False))
    return right, max(len(output), len(reference))


def as_dataset(rows: Sequence[tuple[str, str]]) -> Dataset:
    from datasets import Dataset

    return Dataset.from_dict({"question": [row[0] for row in rows], "answer": [row[1] for row in rows]})
