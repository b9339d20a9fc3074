"""Documents packed into rows of one length with their borders kept: no token attends to another document."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from zoo.base.errors import UnwritableError
from zoo.base.files import check_writable, written
from zoo.data.corpora.shards import TokenRow
from zoo.fast.chunked_loss import IGNORED

from .blocks import Ids

WINDOW = 1 << 16  # Pieces of documents that are packed together

Numbers = npt.NDArray[np.int64]


class PackedDocuments(Dataset[Any]):
    """Rows of whole documents, or of pieces of those that are longer than a row; `segments` are those of `pack`.

    Each id but the first is a label once, predicted from the ids before it in its document and the end of the document
    before, which takes the place of a beginning. Positions start again with every document, which separates them for
    models. The rest of a row is padding, a document without labels.
    """

    def __init__(self, ids: Ids | TokenRow, row_size: int, segments: Numbers, pad_token_id: int) -> None:
        self.ids, self.row_size, self.segments, self.pad_token_id = ids, row_size, segments, pad_token_id

    def __len__(self) -> int:
        return int(self.segments[-1, 0]) + 1 if len(self.segments) else 0

    def __getitem__(self, row: int) -> dict[str, Ids]:
        if not 0 <= row < len(self):
            raise IndexError(row)
        first, last = np.searchsorted(self.segments[:, 0], [row, row + 1])
        inputs, labels, places = [], [], []
        left = self.row_size
        for _, start, length in self.segments[first:last].tolist():
            piece = self.ids[start - 1 : start + length].astype(np.int64)
            inputs.append(piece[:-1])
            labels.append(piece[1:])
            places.append(np.arange(length))
            left -= length
        return {
            "input_ids": np.concatenate([*inputs, np.full(left, self.pad_token_id)]),
            "labels": np.concatenate([*labels, np.full(left, IGNORED)]),
            "position_ids": np.concatenate([*places, np.arange(left)]),
        }

    @property
    def lengths(self) -> Ids:
        return np.full(len(self), self.row_size, np.int32)

    @property
    def num_tokens(self) -> int:
        """Number of ids that are read, without padding."""
        return int(self.segments[:, 2].sum())


def pack(ends: Iterable[Ids], row_size: int) -> Numbers:
    """Pack documents by their ends, best fit: each piece's row, first label and number of labels, by rows."""
    found, rows = [np.empty((0, 3), np.int64)], 0
    for starts, lengths in windows(ends, row_size):
        placed, used = best_fit(lengths, row_size)
        segments = np.stack([placed + rows, starts, lengths], 1)
        found.append(segments[np.argsort(placed, kind="stable")])
        rows += used
    return np.concatenate(found)


def windows(ends: Iterable[Ids], row_size: int) -> Iterator[tuple[Numbers, Numbers]]:
    """First labels and numbers of labels of pieces, a window at a time."""
    begin = 1
    for part in ends:
        for start in range(0, len(part), WINDOW):
            stops = np.asarray(part[start : start + WINDOW], np.int64)
            starts = np.concatenate([[begin], np.maximum(stops[:-1], 1)])
            begin = max(int(stops[-1]), 1)
            pieces = -(-(stops - starts) // row_size)
            number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            first = np.repeat(starts, pieces) + number * row_size
            yield first, np.minimum(np.repeat(stops, pieces) - first, row_size)


def best_fit(lengths: Numbers, row_size: int) -> tuple[Numbers, int]:
    """Place pieces into rows, each into the fullest that has room; returns the row of each, and the number of rows."""
    placed, rows = np.empty(len(lengths), np.int64), 0
    waiting: dict[int, list[int]] = defaultdict(list)
    room = 0  # a bit for every length that some row has left
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[piece])
        fitting = room >> length
        left = length + (fitting & -fitting).bit_length() - 1 if fitting else row_size
        if fitting:
            row = waiting[left].pop()
            if not waiting[left]:
                room ^= 1 << left
        else:
            row, rows = rows, rows + 1
        placed[piece] = row
        if rest := left - length:
            waiting[rest].append(row)
            room |= 1 << rest
    return placed, rows


def ends_in(ids: Ids, end: int | None) -> Ids:
    """Where documents end in a row, the last one at its end."""
    found = np.flatnonzero(ids == end) + 1 if end is not None else np.empty(0, np.int64)
    return found if len(found) and found[-1] == len(ids) else np.append(found, len(ids))


def packed_once(row: TokenRow, row_size: int, folder: Path) -> Numbers:
    """Pack the documents of a prepared folder once, read by memory map; in memory where the folder is read-only."""
    place = folder / "packed" / f"{row_size}-{row.start}-{row.stop}.npy"
    if not place.is_file():
        try:
            check_writable(place.parent)
        except UnwritableError:
            return pack(row.document_ends(), row_size)
        with written(place):
            place.parent.mkdir(exist_ok=True)
            partial = place.with_suffix(f".{os.getpid()}.partial")
            with partial.open("wb") as stream:
                np.save(stream, pack(row.document_ends(), row_size))
            os.replace(partial, place)
    segments: Numbers = np.load(place, mmap_mode="r")
    return segments
