"""CTranslate2: a model for its inference engine, through that engine's own model specification."""

from .planning import plan_ctranslate2
from .running import load_ctranslate2
from .writing import DTYPES, check_ctranslate2, write_ctranslate2

__all__ = [
    "DTYPES",
    "check_ctranslate2",
    "load_ctranslate2",
    "plan_ctranslate2",
    "write_ctranslate2",
]
