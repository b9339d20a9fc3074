"""Tokenizers, trained from the data or taken from a folder."""

from .kinds import (
    SPECIAL_TOKENS,
    TOKENIZERS,
    leave_open,
    open_texts,
    train_bpe,
    train_character,
    train_d2l_word,
    train_explicando_character,
    train_unigram,
    train_word,
    wrap,
)
from .pairs import Tokenizers, load_tokenizers, train_tokenizers

# fmt: off
__all__ = [
    "SPECIAL_TOKENS", "TOKENIZERS", "Tokenizers", "leave_open", "load_tokenizers", "open_texts", "train_bpe",
    "train_character", "train_d2l_word", "train_explicando_character", "train_tokenizers", "train_unigram",
    "train_word", "wrap",
]
