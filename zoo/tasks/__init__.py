"""What models are trained on: data, tokenizers, scores."""

from .reading import DataError, UnknownColumnError, read_columns
from .scores import Score, translation_scores
from .sources import SHIPPED, Splits, load_splits
from .task import TASKS, DataTask
from .tokenizers import TOKENIZERS, Tokenizers, load_tokenizers, train_tokenizers
from .translation import Translation

__all__ = [
    "SHIPPED",
    "TASKS",
    "TOKENIZERS",
    "DataError",
    "DataTask",
    "Score",
    "Splits",
    "Tokenizers",
    "Translation",
    "UnknownColumnError",
    "load_splits",
    "load_tokenizers",
    "read_columns",
    "train_tokenizers",
    "translation_scores",
]
