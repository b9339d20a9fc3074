"""The order of training examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Sampler

from zoo.data.corpora.shards import TokenRow
from zoo.data.tasks.mixing import MixedBlocks

from .arguments import ZooTrainingArguments

BATCHES_SORTED_TOGETHER = 50


class EpochSampler(Sampler[int]):
    """An order that depends on the seed and the epoch alone, so that resumed runs and other models see the same."""

    epoch = 0

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.seed = length, seed

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; accelerate calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length


class LengthGroupedSampler(EpochSampler):
    """Batches of similar lengths in random order.

    Unlike with transformers' sampler of this name, models that draw different numbers of random numbers see the same
    batches, and a resumed run goes on where it was.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        super().__init__(len(lengths), seed)
        self.lengths, self.batch_size = lengths, batch_size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        shuffled = torch.randperm(len(self.lengths), generator=generator).tolist()
        together = self.batch_size * BATCHES_SORTED_TOGETHER
        batches: list[list[int]] = []
        for start in range(0, len(shuffled), together):
            alike = sorted(shuffled[start : start + together], key=lambda i: self.lengths[i])
            batches += [alike[i : i + self.batch_size] for i in range(0, len(alike), self.batch_size)]
        # A batch that is not full must stay last, or it would shift the borders of those that follow.
        rest = [batches.pop()] if batches and len(batches[-1]) < self.batch_size else []
        order = torch.randperm(len(batches), generator=generator).tolist()
        for batch in [*(batches[i] for i in order), *rest]:
            yield from batch


class ShuffledBlocks(EpochSampler):
    """All blocks in random order, without a permutation in memory.

    The order is a Feistel network over the numbers of blocks; results beyond the last one are permuted again (cycle
    walking). An epoch has whole updates (of `together` blocks), so that these are the same on any number of processes.
    """

    def __init__(self, number: int, together: int, seed: int) -> None:
        super().__init__(number - number % together if number >= together else number, seed)
        self.number = number

    def __iter__(self) -> Iterator[int]:
        keys = keys_of(self.seed, self.epoch)
        for start in range(0, self.length, PERMUTED_TOGETHER):
            places = np.arange(start, min(start + PERMUTED_TOGETHER, self.length), dtype=np.uint64)
            yield from permuted(places, self.number, keys).tolist()


class MixedOrder(ShuffledBlocks):
    """Blocks of several sources in their shares, each source in a new order in each of its own epochs."""

    def __init__(self, blocks: MixedBlocks, together: int, seed: int) -> None:
        super().__init__(len(blocks), together, seed)
        self.blocks = blocks

    def __iter__(self) -> Iterator[int]:
        begin = self.epoch * self.length
        for start in range(begin, begin + self.length, PERMUTED_TOGETHER):
            yield from self.numbers(start, min(start + PERMUTED_TOGETHER, begin + self.length)).tolist()

    def numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Numbers of blocks at places of the whole run. *Shape:* (stop - start,)."""
        blocks, period = self.blocks, len(self.blocks.pattern)
        sources = blocks.pattern[np.arange(start, stop) % period]
        drawn = blocks.drawn(start)
        numbers = np.empty(stop - start, np.int64)
        for source, size in enumerate(blocks.sizes):
            ours = np.flatnonzero(sources == source)
            epochs, places = np.divmod(drawn[source] + np.arange(len(ours)), size)
            for epoch in np.unique(epochs).tolist():
                now = epochs == epoch
                keys = keys_of(self.seed, source, epoch)
                found = permuted(places[now].astype(np.uint64), size, keys).astype(np.int64)
                numbers[ours[now]] = epoch * len(blocks) + blocks.ends[source] - size + found
        return numbers


def order_of_blocks(dataset: Any, args: ZooTrainingArguments) -> ShuffledBlocks | None:
    """The order of blocks of shards or of a mixture, in whole updates; None for others."""
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    if isinstance(dataset, MixedBlocks):
        return MixedOrder(dataset, together, args.order_seed)
    shuffled = args.train_sampling_strategy != "sequential" and isinstance(getattr(dataset, "ids", None), TokenRow)
    return ShuffledBlocks(len(dataset), together, args.order_seed) if shuffled else None


FEISTEL_ROUNDS = 6
PERMUTED_TOGETHER = 4096


def keys_of(*numbers: int) -> npt.NDArray[np.uint64]:
    """A random number for each round of a permutation that other numbers choose."""
    return np.random.SeedSequence(numbers).generate_state(FEISTEL_ROUNDS, np.uint64).astype(np.uint64)


def permuted(places: npt.NDArray[np.uint64], number: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A permutation of range(number) at some places, by a random key for each round."""
    half = np.uint64(max(1, (number.bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    result, outside = places.copy(), np.ones(len(places), bool)
    while outside.any():
        left, right = result[outside] >> half, result[outside] & mask
        for key in keys:
            mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(29))) & mask)
        result[outside] = (left << half) | right
        outside = result >= number
    return result


def lengths_of(dataset: Any) -> Sequence[int]:
    return dataset.lengths if hasattr(dataset, "lengths") else list(dataset["length"])


def tokens_in(dataset: Any) -> int:
    """Number of tokens of all examples, without the padding that fills rows up."""
    return int(dataset.num_tokens if hasattr(dataset, "num_tokens") else np.sum(lengths_of(dataset)))


def have_many_lengths(dataset: Any) -> bool:
    """Whether examples are of different lengths, and batches therefore too; None has no examples."""
    return dataset is not None and len(np.unique(np.asarray(lengths_of(dataset)))) > 1
