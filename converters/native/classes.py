"""Format and task of a class of transformers."""

from __future__ import annotations

from collections.abc import Mapping

from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto

from zoo.base.errors import enumerate_names
from zoo.registry import Task

from ..errors import ConversionError, NoCounterpartError
from .base import NATIVE, NativeFormat, UnknownNativeError

AUTO_CLASSES: Mapping[str, Mapping[str, str]] = {
    Task.FEATURE_EXTRACTION: modeling_auto.MODEL_MAPPING_NAMES,
    Task.MASKED_LM: modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    Task.CAUSAL_LM: modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    Task.SEQ2SEQ_LM: modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    Task.SEQUENCE_CLASSIFICATION: modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    Task.TOKEN_CLASSIFICATION: modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
}
"""transformers' own classes by task and model type."""

RELATED = {
    "apertus": "its activation has weights",
    "blenderbot-small": "its decoder's embeddings are normalised before positions are added",
    "encoder-decoder": "convert its encoder and its decoder each by itself",
    "hunyuan_v1_dense": "its queries and keys are normalised after their rotation",
    "lfm2_moe": "weights of the experts that a token sees are divided by a millionth more than their sum",
    "modernbert-decoder": "its language model's head transforms what it projects, as those for masked words do",
    "phimoe": "each of its two experts is weighed among those that score nearly as well as it does",
    "qwen3_5": "convert its language model, which transformers.AutoModelForCausalLM loads by itself",
    "umt5": "every layer has relative positions of its own, where all layers of t5 share one table",
}
"""Reasons why model types that resemble convertible ones cannot be converted."""


def format_of(native: PreTrainedConfig) -> NativeFormat:
    """Find the format of a native configuration."""
    by_type = {model_type: NATIVE.get(name) for name in NATIVE for model_type in NATIVE.get(name).model_types}
    if native.model_type in RELATED:
        raise NoCounterpartError(native.model_type, [RELATED[native.model_type]])
    if native.model_type not in by_type:
        raise UnknownNativeError(native.model_type, sorted(by_type))
    return by_type[native.model_type]


def class_names(found: NativeFormat, model_type: str) -> dict[str, str]:
    """The classes of a model type, which may be a sibling that shares the format's code."""
    if model_type == found.model_types[0]:
        return dict(found.classes)
    return {task: AUTO_CLASSES[task][model_type] for task in found.classes if model_type in AUTO_CLASSES[task]}


def task_of_class(found: NativeFormat, native: PreTrainedConfig, *names: str) -> str:
    """The task of a class of transformers."""
    tasks = {name: task for task, name in class_names(found, native.model_type).items()}
    for name in names:
        if name in tasks:
            return tasks[name]
    by_class = ", ".join(f"{name} ({task})" for name, task in tasks.items())
    if not has_both_stacks(found, names[0]):
        raise NoCounterpartError(
            found.name, [f"{names[0]} is one stack of an encoder-decoder; converted are {by_class}"]
        )
    raise NoCounterpartError(
        found.name,
        [
            f"{names[0]} has a head that no model of the zoo has; converted are {by_class}; with task= (on the command "
            "line --set task=...) another head is taken, or with feature-extraction none"
        ],
    )


def has_both_stacks(found: NativeFormat, class_name: str) -> bool:
    """Whether a class has all the layers that its format reads."""
    return found.stack != "encoder-decoder" or not class_name.endswith(("EncoderModel", "ForCausalLM"))


def task_of_architecture(found: NativeFormat, native: PreTrainedConfig, name: str) -> str:
    """The task of a checkpoint, by its configuration."""
    if not native.architectures:
        raise ConversionError(
            f"the configuration of {name} names no architecture, so its head is not known; give task= (on the command "
            f"line --set task=...), one of {enumerate_names(found.classes)}; feature-extraction leaves heads out"
        )
    return task_of_class(found, native, native.architectures[0])
