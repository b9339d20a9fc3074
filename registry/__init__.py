"""Names of the zoo: variants, parts, weights and corpora, what is known about them, and the plugins that bring more.

Imports the standard library only, and knows no model.
"""

from .cards import Card, Facts, describe, find_facts_with
from .corpora import CORPORA, ENGINES, Corpus, CorpusFile, list_corpora, register_corpus
from .names import TASKS, Task, VariantSpec, parse_name, parse_value, require_task, split_options
from .plugins import Origin
from .table import Registry
from .variants import SIZES, VARIANTS, Quirk, Variant, list_variants, register
from .weights import (
    WEIGHTS,
    FileDigest,
    RecordedScore,
    Weights,
    find_weights,
    is_weights_name,
    list_weights,
    register_weights,
)

# fmt: off
__all__ = [
    "CORPORA", "ENGINES", "SIZES", "TASKS", "VARIANTS", "WEIGHTS", "Card", "Corpus", "CorpusFile", "Facts",
    "FileDigest", "Origin", "Quirk", "RecordedScore", "Registry", "Task", "Variant", "VariantSpec", "Weights",
    "describe", "find_facts_with", "find_weights", "is_weights_name", "list_corpora", "list_variants", "list_weights",
    "parse_name", "parse_value", "register", "register_corpus", "register_weights", "require_task", "split_options",
]
