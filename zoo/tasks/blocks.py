"""A text as one long row of ids, read in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

IGNORED = -100
"""The label of what does not count in the loss."""

Ids = npt.NDArray[Any]


class TokenBlocks(Dataset[Any]):
    """Blocks of a row of ids, each with the ids that follow.

    Blocks that begin a block apart meet every id but the first once as a label, in the last block too, which may be
    shorter. Blocks that begin less far apart overlap, and are all whole; with 1, every place is a beginning, so that
    blocks drawn at random are nanoGPT's.

    Args:
        ids: The row. *Shape:* (num_tokens,)
        block_size: Number of ids a model reads at once.
        stride: How far apart blocks begin, by default `block_size`.
    """

    def __init__(self, ids: Ids, block_size: int, stride: int | None = None) -> None:
        self.ids = ids
        self.block_size = block_size
        self.stride = stride if stride is not None else block_size
        labels = max(len(ids) - 1, 0)
        shortest = 1 if self.stride >= block_size else block_size
        self.starts = range(0, max(labels - shortest + 1, 0), self.stride)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> dict[str, Ids]:
        start = self.starts[index]
        block = self.ids[start : start + self.block_size + 1].astype(np.int64)
        return {"input_ids": block[:-1], "labels": block[1:]}

    @property
    def lengths(self) -> list[int]:
        """Number of ids of each block."""
        last = len(self.ids) - 1
        return [min(self.block_size, last - start) for start in self.starts]


class BlockCollator:
    """Puts blocks into batches.

    The labels are those of the next ids already, so they are given as `shift_labels` too: models compute their loss
    with these, and no position of the model is spent on an id that is only a label.

    Args:
        pad_token_id: What fills up a shorter block; it never counts.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, blocks: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch.

        Args:
            blocks: Blocks of [`TokenBlocks`][].

        Returns:
            `input_ids`, `labels` and `shift_labels`, *Shape:* (batch_size, seq_len), and an `attention_mask` where a
            block was filled up.
        """
        ids = [torch.as_tensor(block["input_ids"]) for block in blocks]
        labels = [torch.as_tensor(block["labels"]) for block in blocks]
        if len({len(block) for block in ids}) == 1:
            together = torch.stack(labels)
            return {"input_ids": torch.stack(ids), "labels": together, "shift_labels": together}
        together = pad_sequence(labels, batch_first=True, padding_value=IGNORED)
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_token_id),
            "attention_mask": together.ne(IGNORED).long(),
            "labels": together,
            "shift_labels": together,
        }
