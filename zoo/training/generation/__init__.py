"""Models that write: text in, text out."""

from zoo.registry import ENGINES

from .checkpoint import load_checkpoint
from .engines import Engine, ExportEngine, load_for
from .fastest import Trial, accelerate, try_engines
from .generating import Candidate, Generation, generate

__all__ = [
    "ENGINES",
    "Candidate",
    "Engine",
    "ExportEngine",
    "Generation",
    "Trial",
    "accelerate",
    "generate",
    "load_checkpoint",
    "load_for",
    "try_engines",
]
