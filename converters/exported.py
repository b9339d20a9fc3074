"""For which engine a folder was exported, told by its files: importing this imports no engine."""

from __future__ import annotations

from pathlib import Path

from transformers.utils import CONFIG_NAME

ONNX, CTRANSLATE2 = "onnx", "ctranslate2"

ENCODER, DECODER, WHOLE = "encoder_model", "decoder_model", "model"
"""Names of the graphs of an export to ONNX, as the files that Hugging Face Optimum and transformers.js look for."""

GRAPH_ENDING = ".onnx"

MARKS = {ONNX: (f"{WHOLE}{GRAPH_ENDING}", f"{DECODER}{GRAPH_ENDING}"), CTRANSLATE2: ("model.bin",)}
"""By an engine, the files by any of which its exports are known."""


def is_exported_for(engine: str, folder: Path) -> bool:
    """Whether a folder was exported for an engine.

    Args:
        engine: One of [`MARKS`][].
        folder: A folder.

    Returns:
        True if it holds what such an export does.
    """
    return (folder / CONFIG_NAME).is_file() and any((folder / mark).is_file() for mark in MARKS[engine])
