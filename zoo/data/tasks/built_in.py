"""Importing this registers the tasks that come with the zoo."""

from . import labels, language_modeling, masked_language_modeling, pairs, span_corruption, synthetic

__all__ = ["labels", "language_modeling", "masked_language_modeling", "pairs", "span_corruption", "synthetic"]
