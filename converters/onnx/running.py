"""Loads exported graphs as a model."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.errors import CheckpointError
from zoo.models import TASK_CLASSES, ZooConfig
from zoo.registry import Task

from ..exported import ONNX, is_exported_for
from ..extras import require
from .models import OnnxForCausalLM, OnnxForConditionalGeneration, OnnxModel
from .session import OnnxBase

CLASSES: dict[str, type[OnnxBase]] = {
    Task.SEQ2SEQ_LM.value: OnnxForConditionalGeneration,
    Task.CAUSAL_LM.value: OnnxForCausalLM,
}
"""By the task; all others do not generate."""


def load_onnx(folder: str | os.PathLike[str]) -> OnnxBase:
    """Load an exported folder as a model.

    Args:
        folder: What `zoo export --as onnx` wrote.

    Returns:
        A `PreTrainedModel` for the task that was exported; language models generate.

    Raises:
        MissingExtraError: When onnxruntime is not installed.
        CheckpointError: When the folder holds no such export.
    """
    require("onnx", "onnxruntime")
    path = Path(folder)
    if not is_exported_for(ONNX, path):
        raise CheckpointError(f"{path} holds no ONNX export; `zoo export DIR -o {path} --as onnx` writes one")
    config = ZooConfig.from_pretrained(path)
    saved = (config.architectures or [None])[0]
    task = next((task for task, (_, model_class) in TASK_CLASSES.items() if model_class.__name__ == saved), "")
    return CLASSES.get(str(task), OnnxModel)(config, path)
