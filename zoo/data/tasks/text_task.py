"""Base class of tasks on raw text: texts from a file, read as one row of ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.base.errors import DataError
from zoo.data.corpora.planning import resolved
from zoo.data.corpora.sources import HELDOUT_NAMES, cut, kind_of
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import to_ids

from .reading import READERS, documents, read_lines, read_table
from .sources import DataSource, Splits, find_file, shares_of
from .tables import Column, Kind
from .task import DataTask

if TYPE_CHECKING:
    from datasets import Dataset

    from .blocks import DrawnBlocks, Ids, Row


TEXT_SUFFIX = ".txt"


def read_text(path: str | Path) -> str:
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file} is not a file")
    text = "".join(line for _, line in read_lines(file))
    if not text.strip():
        raise DataError(f"{file} is empty")
    return text


def is_one_text(file: str) -> bool:
    return Path(file).is_file() and kind_of(file) == TEXT_SUFFIX


def is_divided(data: str | None) -> bool:
    """Whether data are one text that is read into memory, which is divided where no held-out file is given."""
    from .prepared import needs_shards

    place = "" if data is None else resolved(data)
    return is_one_text(place) and not needs_shards(place)


def in_parts(text: str) -> Dataset:
    """Cut a long text so that no tokenizer has to take it at once."""
    from datasets import Dataset

    parts = list(cut(text))
    return Dataset.from_dict({"text": parts, "document": [0] * len(parts)})


TEXTS_AT_ONCE = 64  # Texts that are tokenized together
LONGEST_SAMPLE = 64  # Characters of a text that a saved model is asked about


@dataclass(frozen=True)
class RawTextTask(DataTask):
    """Raw text. A .txt file is one text; in the other formats every row is a document."""

    kinds = (Kind.TEXT,)
    main_score = "perplexity"
    shifted: ClassVar[bool] = False  # Whether labels are those of the next ids

    block_size: int = 128  # Number of tokens that a model reads at once
    # How far apart the blocks to train on begin, by default as far as they are long; 1 for blocks that begin anywhere
    stride: int | None = None
    # Which part of a text, from its beginning, is trained on where no held-out file is given
    train_fraction: float = 0.9
    streaming: bool = False  # Whether texts are encoded while they are trained on, without shards on the disk
    shuffle_buffer: int = 10_000  # Documents that wait to be streamed; a random one is next

    def __post_init__(self) -> None:
        self.check_counts("block_size", "stride", unit="tokens")
        self.check_counts("shuffle_buffer", unit="documents")
        if not self.streaming:
            self.refuse_given(["shuffle_buffer"], "which has no effect without streaming=true")
        self.check_option("train_fraction", 0 < self.train_fraction < 1, "it lies between 0 and 1")

    def load(
        self,
        data: str | Path | None = None,
        *,
        heldout: str | Path | None = None,
        columns: Sequence[Column] | None = None,
        seed: int = 0,
    ) -> Splits:
        from zoo.data.corpora.shards import is_prepared

        from .mixing import mixed_splits
        from .prepared import needs_shards, one_column, prepared_splits, source_splits

        if self.streaming:
            return self.streamed(data, heldout, one_column(columns))
        if data is not None and (shares := shares_of(str(data))) is not None:
            return mixed_splits(shares, heldout, one_column(columns))
        data = None if data is None else resolved(data)
        if data is not None and is_prepared(data):
            return prepared_splits(Path(data), heldout)
        if data is not None and needs_shards(data):
            return source_splits(data, heldout, one_column(columns))
        train_file = Path(data) if data is not None else None
        if train_file is not None and (folder := train_file / f"train{TEXT_SUFFIX}").is_file():
            heldout = heldout if heldout is not None else find_file(folder.parent, HELDOUT_NAMES)
            train_file = folder
        if train_file is None or kind_of(train_file) != TEXT_SUFFIX or not train_file.exists():
            splits = super().load(data, heldout=heldout, columns=columns, seed=seed)
            train, held = (documents(part[part.column_names[0]][:]) for part in splits)
            return Splits(train, held, is_divided=splits.is_divided)
        text = read_text(train_file)
        if heldout is not None:
            return Splits(in_parts(text), self.texts_of(heldout, columns))
        return self.divided(text, str(train_file))

    def load_from(self, source: DataSource) -> Splits:
        self.check_columns(source.columns, source.data, source.heldout)
        if self.streaming or source.heldout is not None or not is_divided(source.data):
            self.refuse_given(["train_fraction"], "which divides one text without a held-out file; leave it out")
        return super().load_from(source)

    def check_columns(self, columns: Sequence[Column] | None, *places: str | Path | None) -> None:
        files = [str(place) for place in places if place is not None]
        if columns is not None and files and all(map(is_one_text, files)):
            raise DataError(f"columns={columns} were given, and {files[0]} is one text without any: leave them out")

    def texts_of(self, file: str | Path, columns: Sequence[Column] | None) -> Dataset:
        """Texts to evaluate on: the rows of a table, or a file of another kind as a whole."""
        if (suffix := Path(file).suffix.lower()) not in READERS or suffix == TEXT_SUFFIX:
            return in_parts(read_text(file))
        return documents(read_table(file, columns, kinds=self.kinds).column(0))

    def streamed(self, data: str | Path | None, heldout: str | Path | None, column: str | None) -> Splits:
        from zoo.data.corpora.shards import is_prepared

        from .prepared import source_splits
        from .streaming import StreamedTexts

        if data is None or shares_of(str(data)) is not None or is_prepared(data):
            given = "no data" if data is None else f"{data}, which is prepared or a mixture,"
            raise DataError(f"{given} cannot be streamed; give a file, a folder, the name of a corpus, or hf:ORG/NAME")
        return source_splits(resolved(data), heldout, column, StreamedTexts)

    def prepare(self, splits: Splits, tokenizers: Tokenizers, *, progress: bool = False) -> Splits:
        from .prepared import ShardedTexts

        if not isinstance(splits.train, ShardedTexts):
            return splits
        train: Any = splits.train.prepared(tokenizers, progress=progress)
        return replace(splits, train=train, duplicates=train.duplicates)

    def set_aside(self, examples: Dataset, *, seed: int = 0) -> Splits:
        """Take the end of a text or of shards away, or some of several texts."""
        from .prepared import ShardedTexts

        if isinstance(examples, ShardedTexts):
            return examples.set_aside()
        if len(set(examples["document"][:])) > 1:
            return super().set_aside(examples, seed=seed)
        return self.divided("".join(examples["text"][:]), "the text to train on")

    def divided(self, text: str, source: str) -> Splits:
        border = int(len(text) * self.train_fraction)
        if border == 0 or border == len(text):
            raise DataError(f"{source} has {len(text)} characters, too few to train on some and evaluate on others")
        return Splits(in_parts(text[:border]), in_parts(text[border:]), is_divided=True)

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        from .prepared import ShardedTexts

        if isinstance(examples, ShardedTexts):
            return examples.tokenizers(lambda texts: train_tokenizers(texts, **options), options)
        return train_tokenizers(examples["text"], **options)

    def row(self, examples: Dataset, tokenizers: Tokenizers, *, least: int, training: bool, seed: int = 0) -> Row:
        """Texts as one row of ids, with the end of a text between two documents. *Shape:* (num_tokens,)."""
        import numpy as np

        from .prepared import PreparedTexts
        from .streaming import StreamedRow, StreamedTexts

        if isinstance(examples, PreparedTexts):
            return examples.row(tokenizers)
        if isinstance(examples, StreamedTexts):
            return StreamedRow(examples.source, tokenizers, self.shuffle_buffer, seed)
        ids = np.concatenate([np.empty(0, np.int32), *parts_of_row(examples, tokenizers)])
        if len(ids) < least:
            use = "train" if training else "evaluate"
            raise DataError(f"the texts to {use} on have {len(ids)} tokens; at least {least} are needed")
        return ids

    def drawn(
        self,
        examples: Dataset,
        tokenizers: Tokenizers,
        draw: Callable[..., dict[str, Ids]],
        *,
        training: bool,
        seed: int,
        shortest: int = 1,
    ) -> DrawnBlocks:
        """Blocks in which `draw` draws something; without `stride` and in evaluations one begins after another."""
        from .blocks import DrawnBlocks

        stride = self.stride if training and self.stride is not None else self.block_size
        least = self.block_size if stride < self.block_size else shortest
        ids = self.row(examples, tokenizers, least=least, training=training, seed=seed)
        return DrawnBlocks(ids, self.block_size, stride, seed, draw, shortest)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Any:
        from .mixing import MixedTexts

        if isinstance(examples, MixedTexts):
            return examples.blocks(partial(self.encode, tokenizers=tokenizers, training=training, seed=seed))
        return self.blocks(examples, tokenizers, training=training, seed=seed)

    def collator(self, tokenizers: Tokenizers) -> Callable[[Any], dict[str, Any]]:
        from .blocks import BlockCollator

        return BlockCollator(padding_of(tokenizers), shifted=self.shifted)

    @abstractmethod
    def blocks(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool, seed: int) -> Any:
        """Turn texts of one source into blocks of ids."""

    @property
    def tokens_per_id(self) -> float:
        """Number of tokens that a model reads and writes for each id of a block."""
        return 1.0

    def tokens_per_word(self, examples: Any, encoded: Any, tokenizers: Tokenizers) -> float | None:
        from .prepared import ShardedTexts

        if isinstance(examples, ShardedTexts):
            found = examples.tokens_per_word(tokenizers)
        else:
            words = sum(len(text.split()) for text in examples["text"])
            found = len(encoded.ids) / words if words else None
        return None if found is None else found * self.tokens_per_id

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        return single_vocabulary(tokenizers)

    def samples(self, examples: Dataset, most: int) -> list[str]:
        return [text[:LONGEST_SAMPLE] for text in examples.select(range(min(most, len(examples))))["text"]]


def parts_of_row(examples: Dataset, tokenizers: Tokenizers) -> Iterator[Ids]:
    import numpy as np

    tokenizer = tokenizers.source
    previous = None
    for start in range(0, len(examples), TEXTS_AT_ONCE):
        batch = examples[start : start + TEXTS_AT_ONCE]
        encoded = to_ids(tokenizer, batch["text"], add_special_tokens=False)
        for document, ids in zip(batch["document"], encoded, strict=True):
            if previous is not None and document != previous and tokenizer.eos_token_id is not None:
                yield np.array([tokenizer.eos_token_id], np.int32)
            previous = document
            yield np.array(ids, np.int32)


def padding_of(tokenizers: Tokenizers) -> int:
    """Id of padding in a batch; attention masks it, and it is no label."""
    padding = tokenizers.source.pad_token_id
    return padding if padding is not None else 0


def with_labels(tokenizers: Tokenizers, labels: Sequence[str]) -> dict[str, Any]:
    """Settings of a classifier: vocabulary, special tokens, and labels."""
    numbers = {label: number for number, label in enumerate(labels)}
    return {**single_vocabulary(tokenizers), "id2label": dict(enumerate(labels)), "label2id": numbers}


def single_vocabulary(tokenizers: Tokenizers) -> dict[str, Any]:
    tokenizer = tokenizers.source
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
