"""The order of training examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler

BATCHES_SORTED_TOGETHER = 50


class LengthGroupedSampler(Sampler[int]):
    """Batches of similar lengths in random order.

    Unlike transformers' sampler of this name, the order depends on nothing but the seed and the epoch: so models that
    draw different numbers of random numbers see the same batches, and a resumed run goes on where it was.

    Args:
        lengths: Length of every example.
        batch_size: Number of examples that are padded to one length.
        seed: Which order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; accelerate calls this.

        Args:
            epoch: Its number.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

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


def lengths_of(dataset: Any) -> Sequence[int]:
    """Find how long examples are.

    Returns:
        Tokens of each.
    """
    return dataset.lengths if hasattr(dataset, "lengths") else list(dataset["length"])


def have_many_lengths(dataset: Any) -> bool:
    """Whether examples are of different lengths, and batches therefore too; None has no examples."""
    return dataset is not None and len(set(lengths_of(dataset))) > 1
