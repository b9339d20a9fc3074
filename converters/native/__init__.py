"""Classes of transformers that models of the zoo come from and go to."""

from . import families
from .declared import NATIVE, NativeFormat

__all__ = ["NATIVE", "NativeFormat", "families"]
