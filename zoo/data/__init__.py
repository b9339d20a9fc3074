"""Data of models: tokenizers, tasks with their data and scores, and corpora."""

from typing import TYPE_CHECKING

from zoo.base.lazy import declared_in, lazy_names

if TYPE_CHECKING:
    from . import corpora as corpora
    from . import tasks as tasks
    from . import tokenizers as tokenizers
else:
    __getattr__ = lazy_names(__name__, declared_in(__file__))
