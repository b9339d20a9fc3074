"""Classes of transformers that models of the zoo come from and go to, one file a family."""

from . import bart, bert, gpt2, llama, opt, qwen, roberta, t5, xlm
from .base import NATIVE, NativeFormat, native_format

__all__ = [
    "NATIVE",
    "NativeFormat",
    "bart",
    "bert",
    "gpt2",
    "llama",
    "native_format",
    "opt",
    "qwen",
    "roberta",
    "t5",
    "xlm",
]
