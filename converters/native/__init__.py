"""Classes of transformers that models of the zoo come from and go to."""

from . import families
from .declared import NATIVE, DeclaredFormat, NativeFormat, native_format

__all__ = ["NATIVE", "DeclaredFormat", "NativeFormat", "families", "native_format"]
