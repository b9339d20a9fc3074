"""Converters of the five documents that the zoo began with, one file a document."""

from . import d2l, explicando, nlpt, odom, vanilla

__all__ = ["d2l", "explicando", "nlpt", "odom", "vanilla"]
