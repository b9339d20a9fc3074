"""Corpora by name, prepared once as shards of tokens, and read by memory map.

The names are in [`zoo.registry.CORPORA`][]. Importing this imports neither torch nor transformers.
"""

from zoo.registry import Corpus, CorpusFile, list_corpora, register_corpus

from .getting import corpus_folder, data_folder, get, is_here, located

# fmt: off
__all__ = [
    "Corpus", "CorpusFile", "corpus_folder", "data_folder", "get", "is_here", "list_corpora", "located",
    "register_corpus",
]
