"""From texts to ids."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from zoo.base.errors import DataError

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerFast


def to_ids(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Any], **options: Any) -> list[list[int]]:
    ids: list[list[int]] = encode(tokenizer, texts, **options)["input_ids"] if texts else []
    return ids


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[Any], **options: Any) -> BatchEncoding:
    """Turn texts into ids and what else is asked for, or raise DataError for characters without an id."""
    try:
        return tokenizer(list(texts), return_attention_mask=False, verbose=False, **options)
    except Exception as error:
        if tokenizer.unk_token is not None:
            raise
        known = tokenizer.get_vocab()
        unknown = sorted({character for text in texts for character in text if character not in known})
        raise DataError(f"the tokenizer has no id for {', '.join(map(repr, unknown)) or error}") from error


def ended(tokenizer: PreTrainedTokenizerFast, rows: list[list[int]]) -> list[list[int]]:
    """Ids of texts that a model learns to write, each with an end, which some tokenizers put after no text."""
    end = tokenizer.eos_token_id
    return [ids if end is None or ids[-1:] == [end] else [*ids, end] for ids in rows]


def padding_right(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer with padding on the right: on the left it would move tokens in tables of positions, and labels."""
    right = copy.copy(tokenizer)
    right.padding_side = "right"
    return right


def backend_json(tokenizer: PreTrainedTokenizerFast) -> str:
    """A tokenizer as JSON, without the truncation and padding of its last call."""
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps({**written, "truncation": None, "padding": None}, ensure_ascii=False)


def frame_of(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[list[int], list[int]]:
    """Special ids that a tokenizer puts before and after a text, this one for instance; an end where it puts none."""
    found = encode(tokenizer, [text], return_special_tokens_mask=True)
    ids, special = found["input_ids"][0], found["special_tokens_mask"][0]
    before, after = (len(list(takewhile(bool, side))) for side in (special, special[::-1]))
    if before or after:
        return ids[:before], ids[len(ids) - after :]
    return [], [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def pieces_of(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[str]) -> list[list[int]]:
    """Cut every token by itself, with the blank before it that it has in running text."""
    spaced = [" " * (place > 0) + token for place, token in enumerate(tokens)]
    pieces = to_ids(tokenizer, spaced, add_special_tokens=False)
    return [ids or [tokenizer.unk_token_id or 0] for ids in pieces]
