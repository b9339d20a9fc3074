"""From texts to ids, within a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset, DatasetInfo
from transformers import PreTrainedTokenizerFast

from zoo.errors import ConfigError

from .tables import NUMBERS, DataError


def to_ids(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Any], **options: Any) -> list[list[int]]:
    """Turn texts into ids.

    Args:
        tokenizer: The tokenizer.
        texts: The texts, or lists of tokens with `is_split_into_words=True`.
        options: What the tokenizer is called with.

    Returns:
        Ids a text.

    Raises:
        DataError: When the tokenizer has no id for something, and none for what is unknown.
    """
    if not texts:
        return []
    try:
        ids: list[list[int]] = tokenizer(list(texts), return_attention_mask=False, verbose=False, **options)[
            "input_ids"
        ]
    except Exception as error:
        if tokenizer.unk_token is not None:
            raise
        known = tokenizer.get_vocab()
        unknown = sorted({character for text in texts for character in text if character not in known})
        raise DataError(f"the tokenizer has no id for {', '.join(map(repr, unknown)) or error}") from error
    return ids


def check_length(max_length: int | None) -> None:
    """Require a length that a sequence can have.

    Args:
        max_length: The number of tokens, None for any.

    Raises:
        ConfigError: When it is no positive number.
    """
    if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
        raise ConfigError(f"max_length={max_length!r} is not valid; it is a number of tokens, at least 1")


def encoded(columns: Mapping[str, Any], examples: Dataset, kept: Sequence[int] | None = None) -> Dataset:
    """Make a dataset of encoded examples, which knows where they stand in their source.

    Args:
        columns: What models are trained on.
        examples: The examples as texts.
        kept: The numbers of those that are encoded, by default all.

    Returns:
        The dataset.
    """
    numbers = {
        name: [examples[name][row] for row in (range(len(examples)) if kept is None else kept)]
        for name in NUMBERS.values()
        if name in examples.column_names
    }
    return Dataset.from_dict({**columns, **numbers}, info=DatasetInfo(description=examples.info.description))


def short_enough(lengths: Sequence[int], max_length: int | None, examples: Dataset) -> list[int]:
    """Choose the examples that are not too long.

    Args:
        lengths: Number of tokens of each.
        max_length: How many there may be, None for any number.
        examples: The examples, whose description says where they are from.

    Returns:
        Their numbers.

    Raises:
        DataError: When all are too long.
    """
    kept = [i for i, length in enumerate(lengths) if max_length is None or length <= max_length]
    if not kept and len(lengths):
        source = examples.info.description or "the data"
        raise DataError(
            f"{source}: all {len(lengths)} examples have more than max_length={max_length} tokens; "
            f"the shortest has {min(lengths)}"
        )
    return kept
