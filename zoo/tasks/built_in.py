"""Importing this registers the tasks that come with the zoo."""

from . import language_modeling, translation

__all__ = ["language_modeling", "translation"]
