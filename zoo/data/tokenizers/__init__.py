"""Tokenizers, trained from the data or taken from a folder."""

from .kinds import (
    TOKENIZERS,
    train_bpe,
    train_character,
    train_d2l_word,
    train_explicando_character,
    train_unigram,
    train_word,
)
from .pairs import Tokenizers, load_tokenizers, train_tokenizers
from .vocabulary import SPECIAL_TOKENS, leave_open, open_texts, wrap

__all__ = [
    "SPECIAL_TOKENS",
    "TOKENIZERS",
    "Tokenizers",
    "leave_open",
    "load_tokenizers",
    "open_texts",
    "train_bpe",
    "train_character",
    "train_d2l_word",
    "train_explicando_character",
    "train_tokenizers",
    "train_unigram",
    "train_word",
    "wrap",
]
