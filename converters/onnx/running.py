"""Loads exported graphs as a model."""

from __future__ import annotations

from pathlib import Path

from zoo.models import TASK_CLASSES, ZooConfig
from zoo.registry import Task

from .models import OnnxForCausalLM, OnnxForConditionalGeneration, OnnxModel
from .session import OnnxBase

CLASSES: dict[str, type[OnnxBase]] = {
    Task.SEQ2SEQ_LM.value: OnnxForConditionalGeneration,
    Task.CAUSAL_LM.value: OnnxForCausalLM,
}
"""By the task; all others do not generate."""


def load_onnx(folder: Path) -> OnnxBase:
    """Load exported graphs as a model.

    Args:
        folder: What `zoo export --as onnx` wrote.

    Returns:
        A `PreTrainedModel` for the task that was exported; language models generate.

    Raises:
        CheckpointError: When a graph cannot be loaded.
    """
    config = ZooConfig.from_pretrained(folder)
    saved = (config.architectures or [None])[0]
    task = next((task for task, (_, model_class) in TASK_CLASSES.items() if model_class.__name__ == saved), "")
    return CLASSES.get(str(task), OnnxModel)(config, folder)
