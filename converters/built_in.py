"""Registers the converters that come with the zoo."""

from . import originals

__all__ = ["originals"]
