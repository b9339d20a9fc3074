"""Weights by name: those that ship, addresses of the others, and the folder of a name.

The names and what is known about each are in [`zoo.registry.WEIGHTS`][]. Importing this imports neither torch nor
transformers.
"""

from zoo.registry import Weights, find_weights, list_weights, register_weights

from .locating import is_saved, locate, locate_weights
from .records import read_record, write_record

# fmt: off
__all__ = [
    "Weights", "find_weights", "is_saved", "list_weights", "locate", "locate_weights", "read_record",
    "register_weights", "write_record",
]
