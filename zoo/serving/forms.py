"""The forms in which OpenAI's API answers: completions and chats, whole and as the pieces of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedTokenizerFast

from .text import Piece, Token, token_text


class Form(ABC):
    """A form of answers."""

    name: str  # Value of `object`
    chunk: str  # Value of `object` in a stream
    prefix: str  # How ids begin

    @abstractmethod
    def choice(self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int) -> dict[str, Any]:
        """Write an output."""

    @abstractmethod
    def chunks(
        self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int, *, new: bool
    ) -> Iterator[dict[str, Any]]:
        """Write a piece of a stream."""


class Completion(Form):
    """`/v1/completions`."""

    name = chunk = "text_completion"
    prefix = "cmpl"

    def choice(self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int) -> dict[str, Any]:
        """Write an output."""
        logprobs = None if top is None else self._logprobs(tokenizer, piece, start)
        return {"index": piece.row, "text": piece.text, "logprobs": logprobs, "finish_reason": piece.finish}

    def chunks(
        self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int, *, new: bool
    ) -> Iterator[dict[str, Any]]:
        """Write a piece as if it were all."""
        yield self.choice(tokenizer, piece, top, start)

    def _logprobs(self, tokenizer: PreTrainedTokenizerFast, piece: Piece, start: int) -> dict[str, Any]:
        return {
            "tokens": [token_text(tokenizer, token.id) for token in piece.tokens],
            "token_logprobs": [token.log_probability for token in piece.tokens],
            "top_logprobs": [self._named(tokenizer, token) for token in piece.tokens],
            "text_offset": [start + token.start for token in piece.tokens],
        }

    def _named(self, tokenizer: PreTrainedTokenizerFast, token: Token) -> dict[str, float]:
        """The highest log-probabilities by token; ids that decode alike, as parts of letters do, as stored."""
        named: dict[str, float] = {}
        for id, value in token.top:
            name = token_text(tokenizer, id)
            named[tokenizer.convert_ids_to_tokens(id) if name in named else name] = value
        return named


class Chat(Form):
    """`/v1/chat/completions`."""

    name, chunk = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def choice(self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int) -> dict[str, Any]:
        """Write an output as a message."""
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return self._choice(tokenizer, piece, top, message=message)

    def chunks(
        self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, start: int, *, new: bool
    ) -> Iterator[dict[str, Any]]:
        """Write a piece, after the role and before the end, which come by themselves."""
        if new:
            role = {"role": "assistant", "content": "", "refusal": None}
            yield {"index": piece.row, "delta": role, "logprobs": None, "finish_reason": None}
        if piece.text or piece.tokens:
            unfinished = Piece(piece.row, piece.text, piece.tokens)
            yield self._choice(tokenizer, unfinished, top, delta={"content": piece.text})
        if piece.finish is not None:
            yield {"index": piece.row, "delta": {}, "logprobs": None, "finish_reason": piece.finish}

    def _choice(
        self, tokenizer: PreTrainedTokenizerFast, piece: Piece, top: int | None, **content: dict[str, Any]
    ) -> dict[str, Any]:
        listed = [
            {
                **named(tokenizer, token.id, token.log_probability),
                "top_logprobs": [named(tokenizer, *one) for one in token.top],
            }
            for token in piece.tokens
        ]
        logprobs = None if top is None else {"content": listed, "refusal": None}
        return {"index": piece.row, **content, "logprobs": logprobs, "finish_reason": piece.finish}


def named(tokenizer: PreTrainedTokenizerFast, id: int, log_probability: float) -> dict[str, Any]:
    """A token with its log-probability and its bytes, None for a part of a letter."""
    name = token_text(tokenizer, id)
    return {"token": name, "logprob": log_probability, "bytes": None if "\ufffd" in name else list(name.encode())}


COMPLETION, CHAT = Completion(), Chat()
