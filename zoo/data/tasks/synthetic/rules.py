"""The synthetic tasks: each a rule that makes an answer of a question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.base.errors import ConfigError

from ..task import register_task
from .task import Synthetic

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
