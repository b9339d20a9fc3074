"""Examples of large files: rows and their ids in Arrow files, which are mapped into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import DataError
from zoo.base.files import stamp_of
from zoo.data.corpora.getting import made_once, place_of
from zoo.data.corpora.planning import SAMPLE_CHARACTERS, SHARD_BYTES

if TYPE_CHECKING:
    from datasets import Dataset

    from zoo.data.tokenizers import Tokenizers

ROWS_AT_ONCE = 10_000
ROWS_FILE = "rows.arrow"


class TooLongError(DataError):
    """Examples that are all longer than the model's inputs."""


def is_large(source: str | Path) -> bool:
    """Whether the rows of a file are too many for memory."""
    return Path(source).is_file() and bytes_of(Path(source)) > SHARD_BYTES


def bytes_of(file: Path) -> int:
    """Bytes of the rows of a file: of Parquet, those that it decompresses to."""
    if file.suffix.lower() != ".parquet":
        return file.stat().st_size
    from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]

    metadata = read_metadata(file)
    return sum(int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))


def is_mapped(examples: Any) -> bool:
    return bool(getattr(examples, "cache_files", None))


def mapped_rows(source: str, names: Sequence[str], decides: Any, rows: Iterable[Mapping[str, list[Any]]]) -> Dataset:
    """Map the rows of a file, which are written as Arrow the first time; `decides` are the data of their identity."""
    stamp = [str(Path(source).absolute()), *stamp_of(source)]
    return mapped(place_of("table", [stamp, list(names), decides]), rows, source)


def mapped(place: Path, parts: Iterable[Mapping[str, list[Any]]], description: str) -> Dataset:
    """Map a folder's Arrow file, which is written unless it is there."""
    from datasets import Dataset, DatasetInfo
    from datasets.arrow_writer import ArrowWriter

    def write(folder: Path) -> None:
        remaining = iter(parts)
        first = next(remaining)  # before anything is written: it may be refused
        folder.mkdir()
        features = Dataset.from_dict(dict(first)).features
        with ArrowWriter(path=str(folder / ROWS_FILE), features=features) as writer:
            for part in chain([first], remaining):
                writer.write_batch(dict(part))
            writer.finalize()

    return Dataset.from_file(str(made_once(place, write) / ROWS_FILE), info=DatasetInfo(description=description))


def in_parts(
    encode: Callable[..., Any], examples: Dataset, tokenizers: Tokenizers, *, decides: str, **options: Any
) -> Dataset:
    """Encode mapped examples a part at a time, each by itself, into an Arrow file that is mapped as well."""
    from zoo.data.tokenizers.encoding import backend_json

    def parts() -> Iterator[dict[str, list[Any]]]:
        refused = None
        kept = 0
        for start in range(0, len(examples), ROWS_AT_ONCE):
            part = examples.select(range(start, min(start + ROWS_AT_ONCE, len(examples))))
            try:
                ids = encode(part, tokenizers, **options)
            except TooLongError as error:
                refused = error
                continue
            kept += len(ids)
            yield ids[:]
        if not kept and refused is not None:
            raise refused

    written = [(backend_json(one), one.special_tokens_map) for one in (tokenizers.source, tokenizers.target)]
    place = place_of("encoded", [examples._fingerprint, written, decides, options])
    return mapped(place, parts(), examples.info.description)


def texts_of(read: Callable[[Any], list[str]], examples: Any) -> Iterable[str]:
    """Texts to train a tokenizer on: all, or of mapped examples a sample of at most `SAMPLE_CHARACTERS`."""
    if not is_mapped(examples):
        return read(examples)
    share = min(1.0, SAMPLE_CHARACTERS / max(examples.data.nbytes, 1))
    starts = range(0, len(examples), ROWS_AT_ONCE)
    stops = (min(start + max(1, int(share * ROWS_AT_ONCE)), len(examples)) for start in starts)
    parts = (examples.select(range(start, stop)) for start, stop in zip(starts, stops, strict=True))
    return chain.from_iterable(map(read, parts))


def values_of(examples: Dataset, column: str) -> Iterator[Any]:
    """Values of a column, some at a time."""
    for start in range(0, len(examples), ROWS_AT_ONCE):
        yield from examples[start : start + ROWS_AT_ONCE][column]
