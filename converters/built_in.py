"""Registers the converters that come with the zoo."""

from . import originals, torch_nn

__all__ = ["originals", "torch_nn"]
