"""A text as one long row of ids, read in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import DataCollatorForLanguageModeling

from zoo.fast.chunked_loss import IGNORED
from zoo.models.partly_causal import items_of_kinds

if TYPE_CHECKING:
    from zoo.data.corpora.shards import TokenRow

    from .streaming import StreamedRow

Ids = npt.NDArray[Any]
Row: TypeAlias = "Ids | TokenRow | StreamedRow"  # Ids that are read in slices

ENDLESS = 1 << 50  # Number of ids of a row that is streamed, which has no end


class Blocks(Dataset[Any]):
    """Places of blocks in a row: those that overlap are all whole, and of others the last may be `shortest` long."""

    def __init__(self, ids: Row, end: int, block_size: int, stride: int, shortest: int = 1) -> None:
        self.ids, self.end, self.block_size = ids, end, block_size
        shortest = shortest if stride >= block_size else block_size
        self.starts = range(0, max(end - shortest + 1, 0), stride)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Ids:
        """Number of ids of each block: all but the last ones are whole; of a streamed row, of one."""
        if self.end >= ENDLESS - 1:
            return np.full(1, self.block_size, np.int32)
        lengths = np.full(len(self.starts), self.block_size, np.int32)
        for number in range(len(self.starts) - 1, -1, -1):
            if self.starts[number] + self.block_size <= self.end:
                break
            lengths[number] = self.end - self.starts[number]
        return lengths


class TokenBlocks(Blocks):
    """Blocks of a row of ids, each with the ids that follow.

    Blocks that begin a block apart, the default, meet every id but the first once as a label, in the last block too,
    which may be shorter. With a smaller `stride` they overlap, and are all whole; with 1, every place is a beginning,
    so that blocks drawn at random are nanoGPT's.
    """

    def __init__(self, ids: Row, block_size: int, stride: int | None = None) -> None:
        super().__init__(ids, max(len(ids) - 1, 0), block_size, stride if stride is not None else block_size)

    def __getitem__(self, index: int) -> dict[str, Ids]:
        start = self.starts[index]
        block = self.ids[start : start + self.block_size + 1].astype(np.int64)
        return {"input_ids": block[:-1], "labels": block[1:]}


class DrawnBlocks(Blocks):
    """Blocks of a row of ids; `draw` makes inputs and labels of a block, by the seed, the epoch and the block only."""

    def __init__(
        self, ids: Row, block_size: int, stride: int, seed: int, draw: Callable[..., dict[str, Ids]], shortest: int = 1
    ) -> None:
        super().__init__(ids, len(ids), block_size, stride, shortest)
        self.seed, self.draw, self.epoch = seed, draw, 0

    def set_epoch(self, epoch: int) -> None:
        """Describe which epoch comes next; accelerate calls this."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> dict[str, Ids]:
        start = self.starts[index]
        block = self.ids[start : start + self.block_size].astype(np.int64)
        return self.draw(block, np.random.SeedSequence([self.seed, self.epoch, index]))


def masked(
    block: Ids, drawn_from: np.random.SeedSequence, *, collator: DataCollatorForLanguageModeling
) -> dict[str, Ids]:
    """Mask some ids for a model to predict (BERT, Devlin et al. 2019, section 3.1)."""
    ids, seed = torch.from_numpy(block), drawn_from.generate_state(1, np.uint64)[0]
    collator.generator = torch.Generator().manual_seed(int(seed >> 1))
    special = torch.isin(ids, torch.tensor(collator.tokenizer.all_special_ids))
    inputs, labels = collator.torch_mask_tokens(ids[None], special[None])
    return {"input_ids": inputs[0].numpy(), "labels": labels[0].numpy()}


def without_spans(
    block: Ids,
    drawn_from: np.random.SeedSequence,
    *,
    counts: Callable[[int], tuple[int, int]],
    sentinels: Ids,
    end: int,
) -> dict[str, Ids]:
    """Take out some spans, which are the labels (T5, Raffel et al. 2020, section 3.1.4).

    Each span has its own sentinel, which replaces the span in the input and precedes it among the labels;
    `end` follows both sides. A block begins with what stays and ends with a span.
    """
    missing, spans = counts(len(block))
    generator = np.random.default_rng(drawn_from)
    lengths = (composition(total, spans, generator) for total in (len(block) - missing, missing))
    pieces = np.split(block, np.cumsum(np.stack(list(lengths), axis=1).ravel())[:-1])
    marks = sentinels[:spans, None]
    inputs = [ids for pair in zip(pieces[::2], marks, strict=True) for ids in pair]
    labels = [ids for pair in zip(marks, pieces[1::2], strict=True) for ids in pair]
    return {"input_ids": np.concatenate([*inputs, [end]]), "labels": np.concatenate([*labels, [end]])}


def composition(total: int, parts: int, generator: np.random.Generator) -> Ids:
    """Divide a number at random into parts of at least 1, each way as likely as another. *Shape:* (parts,)."""
    cuts = np.sort(generator.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


class PartlyCausalBlocks(Dataset[Any]):
    """Blocks with every token as a label, or the masked ones, chosen by the seed, the epoch and the block."""

    def __init__(self, masked: DrawnBlocks, causal_share: float) -> None:
        self.masked = masked
        self.ids = masked.ids
        self.causal_share = causal_share
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Describe which epoch comes next; accelerate calls this."""
        self.masked.set_epoch(epoch)
        self.draw = np.random.SeedSequence([self.masked.seed, epoch]).generate_state(1, np.uint64)[0] / 2.0**64

    def __len__(self) -> int:
        lengths = self.masked.lengths  # a last block of one id has no label
        return len(self.masked) - int(len(self.masked) > 1 and lengths[-1] < 2)

    def is_causal(self, index: int) -> bool:
        """Whether a block has no masks: of any number of neighbours, the share that is asked for."""
        place = index * 0.6180339887498949 + float(self.draw)  # a low-discrepancy sequence
        return place % 1.0 < self.causal_share

    def __getitem__(self, index: int) -> dict[str, Any]:
        causal = self.is_causal(index)
        block = self.masked[index]
        ids, labels = block["input_ids"], block["labels"]
        if causal:
            ids = labels = np.where(labels == IGNORED, ids, labels)
        return {"input_ids": ids[:-1], "labels": labels[1:], "causal_rows": causal}

    @property
    def lengths(self) -> Ids:
        return self.masked.lengths[: len(self)] - 1


def items_of_blocks(blocks: Any) -> Tensor | None:
    """Labels of causal blocks and of others, over their shares of all; None without kinds. *Shape:* (2,)."""
    if not len(blocks) or "causal_rows" not in blocks[0]:
        return None
    read = (blocks[index] for index in range(len(blocks)))
    kinds = [
        items_of_kinds(torch.from_numpy(block["labels"])[None], torch.tensor([block["causal_rows"]])) for block in read
    ]
    labels, rows = torch.stack(kinds).sum(dim=0).double()
    return labels / (rows / rows.sum())


class BlockCollator:
    """Puts blocks into batches.

    With `shifted`, labels are those of the next ids already. They are given as `shift_labels` too, then: models compute
    their loss with these, and no position of the model is spent on an id that is only a label.
    """

    def __init__(self, pad_token_id: int, *, shifted: bool = True) -> None:
        self.pad_token_id = pad_token_id
        self.shifted = shifted

    def __call__(self, blocks: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Make a batch, (batch_size, seq_len), of blocks, with an `attention_mask` if a block was filled up."""
        padding = {"input_ids": self.pad_token_id, "labels": IGNORED, "position_ids": 0}
        names = [name for name in padding if name in blocks[0]]
        batch = {name: in_rows([block[name] for block in blocks], padding[name]) for name in names}
        lengths = [len(block["input_ids"]) for block in blocks]
        if len(set(lengths)) > 1:
            batch["attention_mask"] = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        if self.shifted:
            batch["shift_labels"] = batch["labels"]
        if "causal_rows" in blocks[0]:
            batch["causal_rows"] = torch.tensor([block["causal_rows"] for block in blocks])
        return batch


def in_rows(blocks: Sequence[Any], padding: int) -> Tensor:
    """Put ids of blocks into the rows of a tensor, filled up where their lengths differ."""
    if len({len(block) for block in blocks}) == 1:
        return torch.from_numpy(np.stack(blocks))
    return pad_sequence([torch.as_tensor(block) for block in blocks], batch_first=True, padding_value=padding)
