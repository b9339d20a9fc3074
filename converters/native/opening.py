"""Brings a checkpoint of transformers into memory as one of its own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

from zoo.base.errors import ZooError, enumerate_names
from zoo.base.files import read_json
from zoo.registry import Task

from ..checkpoint import Checkpoint, report_not_finite, unwrapped
from ..errors import ConversionError
from ..weights import no_progress_bar
from .base import NativeFormat
from .classes import class_names
from .files import find, read_weights


def read_native_config(folder: Path) -> PreTrainedConfig:
    """Read the configuration of a checkpoint of transformers.

    Raises:
        ConversionError: When there is none.
    """
    try:
        path = find(folder, CONFIG_NAME)
        if path is not None and not isinstance(read_json(path), dict):
            raise ConversionError(f"{str(path)!r} is no configuration")
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ZooError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, StrictDataclassError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConversionError(f"{str(folder)!r} has no configuration that transformers reads: {first_line}") from error


def open_folder(folder: Path, found: NativeFormat, native: PreTrainedConfig, task: str) -> PreTrainedModel:
    """Load a checkpoint as the class for a task."""
    weights = unwrapped(read_weights(folder))
    report_not_finite(Checkpoint(weights, name=str(folder)))
    model = build(weights, str(folder), found, native, task)
    if hasattr(model, "generation_config") and find(folder, GENERATION_CONFIG_NAME) is not None:
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def build(
    weights: dict[str, Tensor], name: str, found: NativeFormat, native: PreTrainedConfig, task: str
) -> PreTrainedModel:
    """Build the class for a task around weights, which transformers gives their present names.

    Args:
        weights: A state_dict of this class, or of one with another head.
        name: What to call the checkpoint.
        found: Its format.
        native: Its configuration.
        task: What the head is for.

    Raises:
        ConversionError: When the class has no such head, or weights are missing or misshapen.
    """
    if task not in found.classes:
        raise ConversionError(f"task={task!r} was given, {found.name} has {enumerate_names(found.classes)}")
    model_class: Any = getattr(transformers, class_names(found, native.model_type)[task])
    dtype = native.dtype or Checkpoint(weights).dtype
    try:
        with no_progress_bar():
            model, report = model_class.from_pretrained(
                None, config=native, state_dict=weights, dtype=dtype, output_loading_info=True
            )
    except (OSError, RuntimeError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConversionError(f"transformers cannot load {name!r} as {model_class.__name__}: {first_line}") from error
    prefix = found.prefix if task == Task.FEATURE_EXTRACTION else ""
    if missing := sorted({prefix + key for key in report["missing_keys"]} - set(found.meaningless(task))):
        raise ConversionError(f"{name!r} lacks weights of {model_class.__name__}: {enumerate_names(missing)}")
    if report["mismatched_keys"]:
        raise ConversionError(f"{name!r} has weights of the wrong shape: {report['mismatched_keys']}")
    checked: PreTrainedModel = model
    return checked
