"""Tasks that make their own examples, to study what architectures can learn."""

from . import recall, rules

__all__ = ["recall", "rules"]
