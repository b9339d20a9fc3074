"""Tasks that models are trained on: data, tokenizers, scores."""

from zoo.base.errors import DataError
from zoo.data.tokenizers import TOKENIZERS, Tokenizers, load_tokenizers, train_tokenizers

from .reading import read_columns
from .scores import Outputs, Predictions, Score, translation_scores
from .sources import SHIPPED, DataSource, Splits, full_path, load_splits
from .tables import Kind, UnknownColumnError
from .task import TASKS, DataTask, find_task, split_name

# fmt: off
__all__ = [
    "SHIPPED", "TASKS", "TOKENIZERS", "DataError", "DataSource", "DataTask", "Kind", "Outputs", "Predictions", "Score",
    "Splits", "Tokenizers", "UnknownColumnError", "find_task", "full_path", "load_splits", "load_tokenizers",
    "read_columns", "split_name", "train_tokenizers", "translation_scores",
]
