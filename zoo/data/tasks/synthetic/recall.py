"""Tasks that ask for several symbols of a sequence: recall with many queries, copying, memorising, compressing.

They are the synthetic tasks of Zoology (Arora et al. 2023, section 3) and of MAD (Poli et al. 2024, appendix B), by
which separate architectures in minutes.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.base.errors import ConfigError, DataError
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import to_ids

from ..scores import Outputs
from ..tables import short_rows
from ..task import register_task
from ..text_task import with_labels
from .rules import Synthetic

if TYPE_CHECKING:
    from datasets import Dataset

UNASKED = "."  # Placeholder in an answer where nothing is asked

Asked = tuple[list[str], list[str]]
"""The symbols of a sequence, and for each what is to be predicted there, or `UNASKED`."""


@dataclass(frozen=True)
class AskedInPlace(Synthetic):
    """A sequence in which some places are asked: there, the model is to predict a symbol."""

    model_tasks = ("causal-lm",)
    main_score = "symbol_accuracy"
    options_for: ClassVar[Mapping[str, str]] = {}

    decoder_only: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.decoder_only:
            raise ConfigError(f"task {self.name!r} asks inside its sequences, so decoder_only must be true")

    separated = False  # the sequence itself asks
    unread = ("min_length",)

    @abstractmethod
    def example(self, generator: random.Random) -> Asked:
        """Make a sequence."""

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        from zoo.fast.chunked_loss import IGNORED

        tokenizer = tokenizers.source
        ids = to_ids(tokenizer, self.sources(examples), add_special_tokens=False)
        answers = to_ids(tokenizer, self.references(examples), add_special_tokens=False)
        if any(len(row) != len(asked) for row, asked in zip(ids, answers, strict=True)):
            raise DataError(f"task {self.name!r} needs a token a symbol, as the tokenizer 'word' makes them")
        unasked = tokenizer.convert_tokens_to_ids(UNASKED)
        labels = [[IGNORED if answer == unasked else answer for answer in row] for row in answers]
        return short_rows(ids, labels, self.max_length if training else None, examples)


@register_task
@dataclass(frozen=True)
class MultiQueryRecall(AskedInPlace):
    """Recall several values (Arora et al. 2023): after `k1 v8 k4 v2`, each `k4` asks for `v2`, each `k1` for `v8`.

    The `num_pairs` pairs come first; every key is asked once among the other symbols after them, sooner rather than
    later: the gap g before it is drawn in proportion to g^(power - 1). `length` is that of the whole sequence.
    """

    name = "multi-query-recall"

    num_symbols: int = 64
    length: int = 64
    num_pairs: int = 4
    power: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("num_pairs")
        is_finite = isinstance(self.power, (int, float)) and math.isfinite(self.power)
        self.check_option("power", is_finite, "it is a finite number")
        if self.num_pairs > self.num_symbols // 2:
            raise ConfigError(f"num_pairs={self.num_pairs} is above half of num_symbols={self.num_symbols}")
        if self.length < 4 * self.num_pairs:
            raise ConfigError(f"length={self.length} is too short; {self.num_pairs} pairs need {4 * self.num_pairs}")

    def example(self, generator: random.Random) -> Asked:
        half = self.num_symbols // 2
        keys = generator.sample(range(half), self.num_pairs)
        values = {key: half + generator.randrange(half) for key in keys}
        front = [symbol for key in keys for symbol in (key, values[key])]
        room = (self.length - len(front)) // 2
        gaps = set[int]()
        weights = [(gap + 1) ** (self.power - 1) for gap in range(room)]
        while len(gaps) < self.num_pairs:
            gaps.update(generator.choices(range(room), weights, k=1))
        queries = [generator.randrange(self.num_symbols) for _ in range(self.length - len(front))]
        answers = [UNASKED] * self.length
        for key, gap in zip(generator.sample(keys, len(keys)), sorted(gaps), strict=True):
            queries[2 * gap] = key
            answers[len(front) + 2 * gap] = str(values[key])
        return [str(symbol) for symbol in (*front, *queries)], answers


@register_task
@dataclass(frozen=True)
class InContextRecall(AskedInPlace):
    """Alternating keys and values; a repeated key asks for the value that it had before (Poli et al. 2024).

    With `noise`, a meaningless symbol comes with that probability where a pair may begin: a share of noise / (noise +
    2 motif (1 - noise)) of all, and not of `noise` as in MAD. With `motif` above 1, keys and values have that many
    symbols, and the last of a key asks for the first of its value, and so on. With `train_everywhere`, as in MAD's own
    training, every symbol counts in the training loss, also the unpredictable ones; held-out sequences ask as without.
    """

    name = "in-context-recall"

    num_symbols: int = 16
    length: int = 128
    noise: float = 0.0
    motif: int = 1
    train_everywhere: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_option(
            "num_symbols", self.num_symbols >= 2, "half of them are keys and half values, 1 of each at least"
        )
        self.check_option("noise", 0 <= self.noise < 1, "it is a share, at least 0 and below 1")
        self.check_option("motif", 1 <= self.motif <= self.length // 4, "it is a number from 1 to a quarter of length")

    def example(self, generator: random.Random) -> Asked:
        half = self.num_symbols // 2
        values: dict[tuple[int, ...], list[int]] = {}
        symbols, answers = list[str](), list[str]()
        known: list[tuple[int, ...]] = []
        while len(symbols) < self.length:
            if generator.random() < self.noise:
                symbols.append(f"n{generator.randrange(self.num_symbols)}")
                answers.append(UNASKED)
                continue
            fresh = tuple(generator.randrange(half) for _ in range(self.motif))
            key = generator.choice(known) if known and generator.random() < 0.5 else fresh
            asked = key in values
            value = values.setdefault(key, [half + generator.randrange(half) for _ in range(self.motif)])
            known = list(values)
            symbols += [str(symbol) for symbol in (*key, *value)]
            values_asked = [str(symbol) if asked else UNASKED for symbol in value]
            answers += [*[UNASKED] * (self.motif - 1), *values_asked, UNASKED]
        return symbols[: self.length], answers[: self.length]

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        from zoo.fast.chunked_loss import IGNORED

        encoded = super().encode(examples, tokenizers, training=training, seed=seed)
        if not (training and self.train_everywhere):
            return encoded
        following = [[*ids[1:], IGNORED] for ids in encoded["input_ids"]]
        return encoded.remove_columns("labels").add_column("labels", following)


@register_task
@dataclass(frozen=True)
class SelectiveCopying(AskedInPlace):
    """Copy, in order, the `num_copied` symbols that are scattered among blanks (Gu and Dao 2023; Poli et al. 2024)."""

    name = "selective-copying"

    num_symbols: int = 16
    length: int = 64
    num_copied: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("num_copied")
        if self.length < 2 * self.num_copied:
            raise ConfigError(f"length={self.length} is below twice num_copied={self.num_copied}")

    def example(self, generator: random.Random) -> Asked:
        copied = [str(generator.randrange(self.num_symbols)) for _ in range(self.num_copied)]
        front = ["blank"] * (self.length - self.num_copied)
        places = sorted(generator.sample(range(len(front)), self.num_copied))
        for place, symbol in zip(places, copied, strict=True):
            front[place] = symbol
        return [*front, *["copy"] * self.num_copied], [*[UNASKED] * len(front), *copied]


@register_task
@dataclass(frozen=True)
class Memorization(AskedInPlace):
    """Learn by heart which value each key has, the same in every sequence (Poli et al. 2024)."""

    name = "memorization"

    num_symbols: int = 256
    length: int = 32

    def example(self, generator: random.Random) -> Asked:
        fixed = random.Random(f"{self.name} {self.num_symbols} {self.data_seed}")
        half = max(1, self.num_symbols // 2)
        values = [half + fixed.randrange(half) for _ in range(half)]
        keys = [generator.randrange(half) for _ in range(max(1, self.length // 2))]
        answers = [answer for key in keys for answer in (UNASKED, str(values[key]))]
        return [symbol for key in keys for symbol in (str(key), "which")], answers


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
