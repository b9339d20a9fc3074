"""Classes of transformers that models of the zoo come from and go to."""

from . import families
from .base import NATIVE, NativeFormat, native_format
from .declared import DeclaredFormat

__all__ = ["NATIVE", "DeclaredFormat", "NativeFormat", "families", "native_format"]
