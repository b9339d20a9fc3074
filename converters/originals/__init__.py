"""Converters of the five documents that the zoo began with, one file a document, and of LTG-BERT's authors."""

from . import d2l, explicando, ltg, nlpt, odom, vanilla

__all__ = ["d2l", "explicando", "ltg", "nlpt", "odom", "vanilla"]
