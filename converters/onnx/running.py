"""Loads exported graphs as a model."""

from __future__ import annotations

from pathlib import Path

from .files import GRAPH_ENDING
from .models import GraphModel, model_of
from .session import OnnxSession


def load_onnx(folder: Path) -> GraphModel:
    """Load exported graphs as a model."""
    return model_of(folder, {path.stem: OnnxSession(path) for path in sorted(folder.glob(f"*{GRAPH_ENDING}"))})
