"""Synthetic tasks, and those of them with a rule that makes an answer of a question."""

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

from ..pairs import PairsTask
from ..scores import Outputs, Predictions, Score
from ..sources import Splits
from ..tables import Column, short_rows
from ..task import register_task
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
        from datasets import Dataset

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
        parts = ([[pair[side] for pair in part] for side in range(2)] for part in (rows[aside:], rows[:aside]))
        return Splits(*(Dataset.from_dict({"question": one, "answer": other}) for one, other in parts))

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
        scores = {"exact_match": ("Exact match", whole), "symbol_accuracy": ("Symbol accuracy", counts)}
        return {
            key: resampled(name, np.array(found), ratio, signature, n_bootstrap=n_bootstrap)
            for key, (name, found) in scores.items()
        }


def matches(output: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    right = sum(ours == theirs for ours, theirs in zip(output, reference, strict=False))
    return right, max(len(output), len(reference))


Example = tuple[Sequence[str], Sequence[str]]


@register_task
@dataclass(frozen=True)
class Copy(Synthetic):
    """Write a sequence again: `3 1 2` becomes `3 1 2`."""

    name = "copy"

    def example(self, generator: random.Random) -> Example:
        drawn = written(self.symbols(generator))
        return drawn, drawn


@register_task
@dataclass(frozen=True)
class Reverse(Synthetic):
    """Write a sequence backwards: `3 1 2` becomes `2 1 3`."""

    name = "reverse"

    def example(self, generator: random.Random) -> Example:
        drawn = written(self.symbols(generator))
        return drawn, drawn[::-1]


@register_task
@dataclass(frozen=True)
class Sort(Synthetic):
    """Write a sequence in order: `3 1 2` becomes `1 2 3`."""

    name = "sort"

    def example(self, generator: random.Random) -> Example:
        drawn = self.symbols(generator)
        return written(drawn), written(sorted(drawn))


@register_task
@dataclass(frozen=True)
class Addition(Synthetic):
    """Add two numbers of `min_length` to `length` digits: `9 5 + 7` becomes `1 0 2`."""

    name = "addition"
    unread = ("num_symbols",)

    length: int = 3

    def example(self, generator: random.Random) -> Example:
        first, second = (self.number(generator) for _ in range(2))
        return [*str(first), "+", *str(second)], list(str(first + second))

    def number(self, generator: random.Random) -> int:
        length = generator.randint(self.min_length, self.length)
        return generator.randrange(10 ** (length - 1) if length > 1 else 0, 10**length)


@register_task
@dataclass(frozen=True)
class AlignedAddition(Synthetic):
    """Add two numbers of `length` digits each (minGPT's `play_math`): `0 7 9 5` becomes `1 0 2`, of one digit more.

    With zeros in front every digit has its place, and no sign is needed. Nine of ten sums of two digits are trained on.
    """

    name = "aligned-addition"
    unread = ("num_symbols", "min_length")

    length: int = 2
    train_examples: int = 9000
    heldout_examples: int = 1000
    decoder_only: bool = True

    separated = False  # the last digit asks

    def example(self, generator: random.Random) -> Example:
        first, second = (generator.randrange(10**self.length) for _ in range(2))
        return list(f"{first:0{self.length}}{second:0{self.length}}"), list(f"{first + second:0{self.length + 1}}")


@register_task
@dataclass(frozen=True)
class ModularAddition(Synthetic):
    """Add two numbers modulo `num_symbols` (Power et al. 2022): `57 101 =` becomes `45` for 113, a symbol a number.

    By default 30 % of all pairs are trained on. Much later than those, a model that forgets what it does not need may
    find the rule, and with it all others: grokking.
    """

    name = "modular-addition"
    unread = ("length", "min_length")

    num_symbols: int = 113
    train_examples: int = 3830
    heldout_examples: int = 1000
    decoder_only: bool = True

    separated = False  # the equals sign asks

    def example(self, generator: random.Random) -> Example:
        first, second = (generator.randrange(self.num_symbols) for _ in range(2))
        return [*written([first, second]), "="], written([(first + second) % self.num_symbols])


@register_task
@dataclass(frozen=True)
class AssociativeRecall(Synthetic):
    """Recall the value next to a key (Graves et al. 2014): `k3 1 k7 4 k3` becomes `1`.

    It has `num_symbols` keys and as many values, and `min_length` to `length` pairs of them with different keys.
    """

    name = "associative-recall"

    length: int = 6
    decoder_only: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length > self.num_symbols:
            raise ConfigError(f"length={self.length} is above num_symbols={self.num_symbols}; all keys must differ")

    separated = False  # the key itself asks

    def example(self, generator: random.Random) -> Example:
        keys = generator.sample(range(self.num_symbols), generator.randint(self.min_length, self.length))
        pairs = [(f"k{key}", str(generator.randrange(self.num_symbols))) for key in keys]
        key, value = generator.choice(pairs)
        return [*(symbol for pair in pairs for symbol in pair), key], [value]


@register_task
@dataclass(frozen=True)
class Induction(Synthetic):
    """Go on as a sequence went on before (Olsson et al. 2022): `5 2 8 4 2` becomes `8`.

    The last symbol has occurred once before, and is followed by what followed it there.
    """

    name = "induction"

    min_length: int = 4
    length: int = 16
    decoder_only: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_symbols < 2 or self.min_length < 2:
            raise ConfigError("induction needs num_symbols and min_length of at least 2")

    separated = False  # the last symbol itself asks

    def example(self, generator: random.Random) -> Example:
        cue = generator.randrange(self.num_symbols)
        others = [symbol for symbol in range(self.num_symbols) if symbol != cue]
        length = generator.randint(self.min_length, self.length)
        drawn = [generator.choice(others) for _ in range(length)]
        place = generator.randrange(length - 1)
        drawn[place] = cue
        return [*written(drawn), str(cue)], [str(drawn[place + 1])]


def written(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]
