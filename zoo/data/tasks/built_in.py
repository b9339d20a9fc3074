"""Importing this registers the tasks that come with the zoo."""

from . import labels, language_modeling, masked_language_modeling, pairs, synthetic

__all__ = ["labels", "language_modeling", "masked_language_modeling", "pairs", "synthetic"]
