"""The text of an output while it grows: stop strings are cut, and only what no later token changes is handed on."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerFast

CONTEXT = 8  # How many tokens before an output are decoded with it, as a first token's blank may depend on them

UNSETTLED = re.compile(r"[\s'\ufffd]+\Z")
"""The end of a text that the next token may change: a part of a letter, or a blank or apostrophe before a suffix."""

BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Tokens of single bytes (byte fallback): those in a row are decoded together, and one that does not fit spoils all."""


@dataclass(frozen=True)
class Token:
    """A token that was written."""

    id: int
    log_probability: float = 0.0  # Of the token, in nats
    top: tuple[tuple[int, float], ...] = ()  # The most probable ids at this step, with their log-probabilities
    start: int = 0  # Where its text begins in the output


@dataclass(frozen=True)
class Piece:
    """The next part of an output."""

    row: int  # The number of the output
    text: str
    tokens: tuple[Token, ...]  # The tokens that begin in it
    finish: str | None = None  # At the end, "stop" for an end or a stop string, "length" where it is cut


@dataclass
class GrowingText:
    """An output, token by token."""

    row: int
    tokenizer: PreTrainedTokenizerFast
    prompt: Sequence[int]  # The ids that it continues; none for an encoder-decoder
    ends: Collection[int]  # Ids that end it
    stops: Sequence[str]  # Texts that end it, and do not belong to it
    finish: str | None = None
    count: int = 0
    text: str = ""
    _ids: list[int] = field(default_factory=list)
    _waiting: list[Token] = field(default_factory=list)
    _sent: int = 0
    _bytes_begin: int | None = None  # Where the text of bytes at the end begins

    def add(self, token: int, log_probability: float = 0.0, top: tuple[tuple[int, float], ...] = ()) -> Piece | None:
        self.count += 1
        if token in self.ends:
            return self.end("stop")
        self._ids.append(token)
        is_byte = BYTE.fullmatch(str(self.tokenizer.convert_ids_to_tokens(token)))
        self._bytes_begin = (len(self.text) if self._bytes_begin is None else self._bytes_begin) if is_byte else None
        self._waiting.append(Token(token, log_probability, top, len(self.text)))
        self.text = self._decode()
        found = [place for stop in self.stops if (place := self.text.find(stop)) >= 0]
        if found:
            self.text = self.text[: min(found)]
            self._waiting = [one for one in self._waiting if one.start < len(self.text)]
            return self.end("stop")
        settled = min([self._settled(), *(len(self.text) - begun(self.text, stop) for stop in self.stops)])
        return self._send(settled) if settled > self._sent else None

    def end(self, finish: str) -> Piece:
        self.finish = finish
        return self._send(len(self.text))

    def _send(self, end: int) -> Piece:
        ended = self.finish is not None
        ready = tuple(one for one in self._waiting if ended or one.start < end)
        self._waiting = self._waiting[len(ready) :]
        piece = Piece(self.row, self.text[self._sent : end], ready, self.finish)
        self._sent = max(self._sent, end)
        return piece

    def _settled(self) -> int:
        unsettled = UNSETTLED.search(self.text)
        settled = unsettled.start() if unsettled else len(self.text)
        return settled if self._bytes_begin is None else min(settled, self._bytes_begin)

    def _decode(self) -> str:
        before = list(self.prompt[-CONTEXT:])
        start, whole = (self.tokenizer.decode(ids, skip_special_tokens=True) for ids in (before, [*before, *self._ids]))
        if whole.startswith(start):
            return str(whole[len(start) :])
        return str(self.tokenizer.decode(self._ids, skip_special_tokens=True))


def token_text(tokenizer: PreTrainedTokenizerFast, id: int) -> str:
    """The text of a token inside of a text, where it keeps the blank before it."""
    before = tokenizer("a", add_special_tokens=False)["input_ids"][-1:]
    start, whole = tokenizer.decode(before), tokenizer.decode([*before, id])
    return str(whole[len(start) :] if whole.startswith(start) else tokenizer.decode([id]))


def begun(text: str, stop: str) -> int:
    """How many letters at the end of a text may be the beginning of a stop string."""
    return next((size for size in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:size])), 0)
