"""Models that write: text in, text out."""

from .checkpoint import load_checkpoint
from .generating import generate
from .results import Candidate, Generation

__all__ = ["Candidate", "Generation", "generate", "load_checkpoint"]
