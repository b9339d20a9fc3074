"""The way in: checkpoints of transformers' own classes become models of the zoo."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

from zoo.building import config as build_config
from zoo.errors import ZooError, enumerate_names
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from ..checkpoint import Checkpoint, report_not_finite
from ..errors import ConversionError, NotConvertibleError
from ..weights import model_with, no_progress_bar
from .base import NATIVE, NativeFormat, UnknownNativeError
from .files import find, folder_of, is_checkpoint, read_weights


def is_native(source: Any, origin: str | None = None) -> bool:
    """Whether a conversion starts from one of transformers' own classes.

    Args:
        source: What is to be converted.
        origin: The name of its format, if it was given.

    Returns:
        True for a model of transformers, its folder, a repository on the Hub, and where a native format was named.
    """
    if origin is not None:
        return origin in NATIVE
    if isinstance(source, PreTrainedModel):
        return not isinstance(source, ZooPreTrainedModel)
    return isinstance(source, str | os.PathLike) and is_checkpoint(source)


def convert_native(
    source: PreTrainedModel | str | os.PathLike[str], task: str | None = None, *, origin: str | None = None
) -> ZooPreTrainedModel:
    """Make a model of the zoo from a checkpoint of transformers' own classes.

        convert_native("path/to/bert")
        convert_native("Helsinki-NLP/opus-mt-en-de")

    Args:
        source: A folder, a repository on the Hub, or a live model of transformers.
        task: What the head is for; by default what the checkpoint's class is for.
        origin: The native format that it must be in, by default any.

    Returns:
        A `PreTrainedModel` with the same outputs, in evaluation mode, in the checkpoint's dtype.

    Raises:
        UnknownNativeError: When the checkpoint is of a class that the zoo does not know.
        ConversionError: When it has something that the zoo lacks, or weights are missing.
    """
    if isinstance(source, PreTrainedModel):
        native, name = source.config, type(source).__name__
        found = format_of(native)
        require_origin(origin, found, name)
        report_not_finite(Checkpoint(source.state_dict(), name=name))
        task = task_of_class(found, type(source).__name__) if task is None else task
        tensors = {name: value.clone() for name, value in source.state_dict().items()}
        tensors = with_prefix(tensors, found, type(source).__name__)
        generation = copy.deepcopy(getattr(source, "generation_config", None))
    else:
        name, folder = str(source), folder_of(source)
        native = read_native_config(folder)
        found = format_of(native)
        task = task_of_architecture(found, native) if task is None else task
        require_origin(origin, found, name)
        tensors, generation = load_native(folder, found, native, task)
    config, weights = translate(found, native, tensors, task)
    model = model_with(config, task, weights)
    if generation is not None and model.can_generate():
        model.generation_config = generation
    return model


def require_origin(origin: str | None, found: NativeFormat, name: str) -> None:
    """Refuse a checkpoint that is in another format than was said.

    Args:
        origin: The name of the format that was given, if one was.
        found: The format that it is in.
        name: What to call the checkpoint.

    Raises:
        ConversionError: When they differ.
    """
    if origin is not None and origin != found.name:
        raise ConversionError(f"origin={origin!r} was given, but {name} is {found.name}")


def translate(
    found: NativeFormat, native: PreTrainedConfig, tensors: dict[str, Tensor], task: str
) -> tuple[ZooConfig, dict[str, Tensor]]:
    """Translate settings and weights.

    Args:
        found: The native format.
        native: The native configuration.
        tensors: The native weights, named as under a head; taken over, so that none is held twice.
        task: What the head is for.

    Returns:
        The zoo's settings and weights.

    Raises:
        ConversionError: When something does not fit.
    """
    settings = {
        "is_decoder": found.stack == "decoder",
        "is_encoder_decoder": found.stack == "encoder-decoder",
        **found.read_config(native, task),
    }
    state = dict(found.infer(native, found.read_weights(native, tensors, task), settings))
    tensors.clear()
    labels = {key: settings.pop(key) for key in ("id2label", "label2id", "problem_type") if key in settings}
    config = build_config(found.variant, task, **settings)
    for field, value in labels.items():
        setattr(config, field, value)
    return config, found.key_map(config, task).forward(state, consume=True)


def read_native_config(folder: Path) -> PreTrainedConfig:
    """Read the configuration of a checkpoint of transformers.

    Args:
        folder: The checkpoint.

    Returns:
        The configuration.

    Raises:
        ConversionError: When there is none.
    """
    try:
        path = find(folder, CONFIG_NAME)
        if path is not None and not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
            raise ConversionError(f"{str(path)!r} is no configuration")
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ZooError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, StrictDataclassError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConversionError(f"{str(folder)!r} has no configuration that transformers reads: {first_line}") from error


def format_of(native: PreTrainedConfig) -> NativeFormat:
    """Find the format of a native configuration.

    Args:
        native: A configuration of transformers.

    Returns:
        The format.

    Raises:
        UnknownNativeError: When no format reads this model type.
    """
    by_type = {model_type: NATIVE.get(name) for name in NATIVE for model_type in NATIVE.get(name).model_types}
    if native.model_type not in by_type:
        raise UnknownNativeError(native.model_type, sorted(by_type))
    return by_type[native.model_type]


def task_of_class(found: NativeFormat, class_name: str) -> str:
    """The task of a class of transformers.

    Args:
        found: Its format.
        class_name: Its name.

    Returns:
        The task.

    Raises:
        NotConvertibleError: When the zoo has no such head.
    """
    by_suffix = {head_of(name): task for task, name in found.classes.items()}
    if head_of(class_name) in by_suffix:
        return by_suffix[head_of(class_name)]
    raise NotConvertibleError(
        f"the zoo reads of {found.name}",
        [f"{class_name} has a head that the zoo lacks (valid tasks: {enumerate_names(found.classes)})"],
    )


def head_of(class_name: str) -> str:
    """The part of a class's name that says which head it has.

    Args:
        class_name: The name of a class of transformers.

    Returns:
        For instance "ForMaskedLM" or "Model".
    """
    return re.search(r"(For\w+|(WithLMHead|LMHead|MT|Encoder)?Model|)$", class_name)[0]  # type: ignore[index]


def task_of_architecture(found: NativeFormat, native: PreTrainedConfig) -> str:
    """The task that a checkpoint says it is for.

    Args:
        found: Its format.
        native: Its configuration.

    Returns:
        The task.

    Raises:
        ConversionError: When it does not say.
        NotConvertibleError: When the zoo has no such head.
    """
    if not native.architectures:
        raise ConversionError(
            f"the configuration names no architecture; say which task: {enumerate_names(found.classes)}"
        )
    return task_of_class(found, native.architectures[0])


def load_native(
    folder: Path, found: NativeFormat, native: PreTrainedConfig, task: str
) -> tuple[dict[str, Tensor], Any]:
    """Read native weights, and let transformers give them their present names.

    Args:
        folder: The checkpoint.
        found: Its format.
        native: Its configuration.
        task: What the head is for.

    Returns:
        Weights, named as under a head, and the generation configuration or None.

    Raises:
        ConversionError: When the class has no such head, or weights are missing or misshapen.
    """
    if task not in found.classes:
        raise ConversionError(f"task={task!r} was given, {found.name} has {enumerate_names(found.classes)}")
    model_class = getattr(transformers, found.classes[task])
    if native.model_type != found.model_types[0]:
        model_class = getattr(transformers, _sibling(native, task))
    weights = read_weights(folder)
    report_not_finite(Checkpoint(weights, name=str(folder)))
    dtype = native.dtype or Checkpoint(weights).dtype
    try:
        with no_progress_bar():
            model, report = model_class.from_pretrained(
                None, config=native, state_dict=weights, dtype=dtype, output_loading_info=True
            )
    except (OSError, RuntimeError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConversionError(
            f"transformers cannot load {str(folder)!r} as {model_class.__name__}: {first_line}"
        ) from error
    prefix = found.prefix if task == Task.FEATURE_EXTRACTION else ""
    if missing := sorted({prefix + key for key in report["missing_keys"]} - set(found.meaningless(task))):
        raise ConversionError(f"{str(folder)!r} lacks weights of {model_class.__name__}: {enumerate_names(missing)}")
    if report["mismatched_keys"]:
        raise ConversionError(f"{str(folder)!r} has weights of the wrong shape: {report['mismatched_keys']}")
    generation = getattr(model, "generation_config", None)
    if generation is not None and find(folder, GENERATION_CONFIG_NAME) is not None:
        generation = GenerationConfig.from_pretrained(folder)
    return with_prefix(model.state_dict(), found, model_class.__name__), generation


def _sibling(native: PreTrainedConfig, task: str) -> str:
    """The class of a model type that shares another one's code."""
    from transformers.models.auto import modeling_auto

    names = {
        Task.FEATURE_EXTRACTION: modeling_auto.MODEL_MAPPING_NAMES,
        Task.MASKED_LM: modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        Task.SEQUENCE_CLASSIFICATION: modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        Task.TOKEN_CLASSIFICATION: modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    }
    return str(names[Task(task)][native.model_type])


def with_prefix(tensors: dict[str, Tensor], found: NativeFormat, class_name: str) -> dict[str, Tensor]:
    """Name a body's weights as under a head.

    Args:
        tensors: Weights.
        found: Their format.
        class_name: The class that they are of.

    Returns:
        The same weights.
    """
    return {found.prefix + name if head_of(class_name) == "Model" else name: value for name, value in tensors.items()}
