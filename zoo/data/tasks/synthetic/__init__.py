"""Tasks that make their own examples, to study what architectures can learn."""

from . import compression, recall, rules

__all__ = ["compression", "recall", "rules"]
