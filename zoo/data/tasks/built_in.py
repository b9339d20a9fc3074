"""Importing this registers the tasks that come with the zoo."""

from . import (
    language_modeling,
    masked_language_modeling,
    masked_next_token,
    synthetic,
    text_classification,
    token_classification,
    translation,
)

__all__ = [
    "language_modeling",
    "masked_language_modeling",
    "masked_next_token",
    "synthetic",
    "text_classification",
    "token_classification",
    "translation",
]
