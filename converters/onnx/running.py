"""Loads exported graphs as a model."""

from __future__ import annotations

import os
from pathlib import Path

from transformers.utils import CONFIG_NAME

from zoo.errors import CheckpointError
from zoo.models import TASK_CLASSES, ZooConfig
from zoo.registry import Task

from ..extras import require
from .graphs import DECODER, WHOLE
from .models import OnnxForCausalLM, OnnxForConditionalGeneration, OnnxModel
from .session import ENDING, OnnxBase

CLASSES: dict[str, type[OnnxBase]] = {
    Task.SEQ2SEQ_LM.value: OnnxForConditionalGeneration,
    Task.CAUSAL_LM.value: OnnxForCausalLM,
}
"""By the task; all others do not generate."""


def is_onnx(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds graphs that `write_onnx` wrote.

    Args:
        folder: A folder.

    Returns:
        True if it does.
    """
    path = Path(folder)
    return (path / CONFIG_NAME).is_file() and any((path / f"{name}{ENDING}").is_file() for name in (WHOLE, DECODER))


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
    if not is_onnx(path):
        raise CheckpointError(f"{path} holds no ONNX export; `zoo export DIR -o {path} --as onnx` writes one")
    config = ZooConfig.from_pretrained(path)
    saved = (config.architectures or [None])[0]
    task = next((task for task, (_, model_class) in TASK_CLASSES.items() if model_class.__name__ == saved), "")
    return CLASSES.get(str(task), OnnxModel)(config, path)
