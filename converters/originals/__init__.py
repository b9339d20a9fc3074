"""Converters of the five documents that the zoo began with, of LTG-BERT's authors, and of PyTorch's own Transformer."""

from . import documents, explicando, ltg, torch_nn

__all__ = ["documents", "explicando", "ltg", "torch_nn"]
