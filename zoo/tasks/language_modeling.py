"""Language modelling: predict the next token of raw text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from zoo.errors import ConfigError

from .blocks import BlockCollator, Ids, TokenBlocks
from .predictions import Outputs, Predictions
from .raw_text import TEXT_SUFFIX, in_parts, read_text
from .scores import Score
from .sources import HELDOUT_NAMES, Splits, find_file
from .tables import Column, DataError, Kind
from .task import TASKS, DataTask
from .tokenizers import Tokenizers, train_tokenizers

TEXTS_AT_ONCE = 64
"""Texts that are tokenized together."""

LONGEST_SAMPLE = 64
"""Characters of a text that a saved model is asked about."""


@dataclass(frozen=True)
class LanguageModeling(DataTask):
    """Raw text; a model predicts every token from those before it, and the perplexity says how well.

    A .txt file is one text. In the other formats, every row is a document, and an end-of-text token stands between two.

    Attributes:
        block_size: Number of tokens that a model reads at once, each of which it continues.
        stride: How far apart the blocks to train on begin, by default as far as they are long; 1 for blocks that begin
            anywhere.
        train_fraction: Which part of a text, from its beginning, is trained on where no held-out file is given.
    """

    name = "language-modeling"
    model_task = "causal-lm"
    kinds = (Kind.TEXT,)
    main_score = "perplexity"
    outputs = Outputs.NONE

    block_size: int = 128
    stride: int | None = None
    train_fraction: float = 0.9

    def __post_init__(self) -> None:
        for option in ("block_size", "stride"):
            value = getattr(self, option)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{option}={value!r} is not valid; it is a number of tokens, at least 1")
        if not 0 < self.train_fraction < 1:
            raise ConfigError(f"train_fraction={self.train_fraction!r} is not valid; it lies between 0 and 1")

    def load(
        self,
        data: str | Path | None = None,
        *,
        heldout: str | Path | None = None,
        columns: Sequence[Column] | None = None,
        seed: int = 0,
    ) -> Splits:
        """Load texts. Arguments as in the base class."""
        train_file = Path(data) if data is not None else None
        if train_file is not None and (folder := train_file / f"train{TEXT_SUFFIX}").is_file():
            heldout = heldout if heldout is not None else find_file(folder.parent, HELDOUT_NAMES)
            train_file = folder
        if train_file is None or train_file.suffix.lower() != TEXT_SUFFIX or not train_file.exists():
            splits = super().load(data, heldout=heldout, columns=columns, seed=seed)
            return Splits(documents(splits.train), documents(splits.heldout))
        text = read_text(train_file)
        if heldout is not None:
            return Splits(in_parts(text), in_parts(read_text(heldout)))
        border = int(len(text) * self.train_fraction)
        if border == 0 or border == len(text):
            raise DataError(f"{train_file} has {len(text)} characters, too few to train on some and evaluate on others")
        return Splits(in_parts(text[:border]), in_parts(text[border:]))

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train the one tokenizer that a language model has. Arguments as in the base class."""
        return train_tokenizers(examples["text"], **options)

    def encode(
        self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0
    ) -> TokenBlocks:
        """Turn texts into blocks. Arguments as in the base class."""
        ids = row_of_ids(examples, tokenizers)
        blocks = TokenBlocks(ids, self.block_size, self.stride if training else None)
        if not len(blocks):
            whole = self.block_size + 1 if training and self.stride is not None else 2
            use = "train" if training else "evaluate"
            raise DataError(f"the texts to {use} on have {len(ids)} tokens; at least {whole} are needed")
        return blocks

    def collator(self, tokenizers: Tokenizers) -> BlockCollator:
        """Make what puts blocks into batches. Arguments as in the base class."""
        return BlockCollator(padding_of(tokenizers))

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Vocabulary and special tokens. Arguments as in the base class."""
        return single_vocabulary(tokenizers)

    def samples(self, examples: Dataset, most: int) -> list[str]:
        """The beginnings of some texts. Arguments as in the base class."""
        return [text[:LONGEST_SAMPLE] for text in examples.select(range(min(most, len(examples))))["text"]]

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Perplexity, and bits per byte, in which tokenizers can be compared. Arguments as in the base class."""
        num_bytes = sum(len(text.encode()) for text in examples["text"])
        bits = predictions.loss * predictions.num_labels / math.log(2) / num_bytes
        return {
            "perplexity": perplexity(predictions.loss, f"tokens:{predictions.num_labels}|block:{self.block_size}"),
            "bits_per_byte": Score(
                "Bits/byte", round(bits, 4), f"bytes:{num_bytes}|block:{self.block_size}", higher_is_better=False
            ),
        }


def perplexity(loss: float, signature: str) -> Score:
    """Write a loss as a perplexity.

    Args:
        loss: Cross-entropy per token, in nats.
        signature: What it was computed on.

    Returns:
        e to the power of the loss.
    """
    value = math.exp(loss) if loss < math.log(1e12) else math.inf
    return Score("Perplexity", round(value, 4), signature, higher_is_better=False)


def documents(examples: Dataset) -> Dataset:
    """Number the documents.

    Args:
        examples: A document a row, in the first column.

    Returns:
        A dataset with the columns `text` and `document`.
    """
    texts = list(examples[examples.column_names[0]])
    return Dataset.from_dict({"text": texts, "document": list(range(len(texts)))})


def row_of_ids(examples: Dataset, tokenizers: Tokenizers) -> Ids:
    """Turn texts into one row of ids, with the end of a text between two documents.

    Args:
        examples: The columns `text` and `document`.
        tokenizers: The tokenizers.

    Returns:
        *Shape:* (num_tokens,)
    """
    return np.concatenate([np.empty(0, np.int32), *parts_of_row(examples, tokenizers)])


def parts_of_row(examples: Dataset, tokenizers: Tokenizers) -> Iterator[Ids]:
    """Turn texts into ids, few at a time.

    Args:
        examples: The columns `text` and `document`.
        tokenizers: The tokenizers.

    Yields:
        Ids, in the order of the texts.
    """
    tokenizer = tokenizers.source
    previous = None
    for start in range(0, len(examples), TEXTS_AT_ONCE):
        batch = examples[start : start + TEXTS_AT_ONCE]
        encoded = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False, verbose=False)
        for document, ids in zip(batch["document"], encoded["input_ids"], strict=True):
            if previous is not None and document != previous and tokenizer.eos_token_id is not None:
                yield np.array([tokenizer.eos_token_id], np.int32)
            previous = document
            yield np.array(ids, np.int32)


def padding_of(tokenizers: Tokenizers) -> int:
    """What fills up a batch; attention never goes there, and it is no label.

    Args:
        tokenizers: The tokenizers.

    Returns:
        The padding's id, or any other where the tokenizer has none.
    """
    padding = tokenizers.source.pad_token_id
    return padding if padding is not None else 0


def single_vocabulary(tokenizers: Tokenizers) -> dict[str, Any]:
    """Describe the vocabulary of a model with one tokenizer.

    Args:
        tokenizers: The tokenizers.

    Returns:
        Fields of [`zoo.models.ZooConfig`][].
    """
    tokenizer = tokenizers.source
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


TASKS.register(LanguageModeling.name, LanguageModeling())
