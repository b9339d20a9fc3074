"""Where a model runs: in torch, or as an export in another engine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from transformers import PreTrainedModel

from zoo.converters.exported import CTRANSLATE2, ONNX, is_exported_for
from zoo.dispatch import load
from zoo.errors import InvalidChoiceError
from zoo.quantizing import to_int8
from zoo.weights import locate

TORCH, TORCH_INT8 = "torch", "torch-int8"

ENGINES = (TORCH, TORCH_INT8, ONNX, CTRANSLATE2)
"""What models run in, the first one by default."""


def load_for(model: str | Path, engine: str | None = None) -> PreTrainedModel:
    """Load a checkpoint, or an export, for an engine.

    Args:
        model: A folder, the name of weights, or a repository on the Hub.
        engine: One of [`ENGINES`][]; by default the one that a folder was exported for. A checkpoint is exported to the
            engine first, in memory and unverified; "torch-int8" is [`zoo.to_int8`][].

    Returns:
        The model, which may be an export behind the same interface.

    Raises:
        InvalidChoiceError: When there is no such engine, or the folder was exported for another one.
        ExportError: When the engine cannot express the model.
        MissingExtraError: When the engine is not installed.
        CheckpointError: When there is no such checkpoint.
    """
    if engine is not None and engine not in ENGINES:
        raise InvalidChoiceError(engine, ENGINES, kind="engine")
    folder = locate(model)
    made_for = next((name for name in (ONNX, CTRANSLATE2) if is_exported_for(name, folder)), None)
    if made_for is None:
        return _run_in(load(folder), engine or TORCH, folder)
    if engine not in (None, made_for):
        raise InvalidChoiceError(str(engine), [made_for], kind=f"engine for the export {folder.name}")
    return _load_export(folder, made_for)


def _run_in(model: PreTrainedModel, engine: str, tokenizers: Path) -> PreTrainedModel:
    if engine == TORCH:
        return model
    if engine == TORCH_INT8:
        return to_int8(model, inplace=True)
    from zoo.converters.exporting import write_ctranslate2_export
    from zoo.converters.onnx import write_onnx

    with tempfile.TemporaryDirectory() as scratch:
        if engine == ONNX:
            write_onnx(model, Path(scratch))
        else:
            write_ctranslate2_export(model, Path(scratch), "float32", tokenizers)
        return _load_export(Path(scratch), engine)


def _load_export(folder: Path, engine: str) -> PreTrainedModel:
    from zoo.converters.ctranslate2 import load_ctranslate2
    from zoo.converters.onnx import load_onnx

    return load_onnx(folder) if engine == ONNX else load_ctranslate2(folder)
