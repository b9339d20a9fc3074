"""The way in: checkpoints of transformers' own classes become models of the zoo."""

from __future__ import annotations

import copy
import gc
import os
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, GENERATION_CONFIG_NAME

from zoo.base.errors import ZooError, enumerate_names, first_line
from zoo.base.files import read_json
from zoo.building.builder import config as build_config
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from ..checkpoint import Checkpoint, report_not_finite, unwrapped
from ..errors import ConversionError, LostInputWarning, NoCounterpartError
from ..weights import from_weights, model_with
from .common import LABELS
from .comparing import observe, require_same
from .declared import NATIVE, NativeFormat, class_names, format_of, task_of_architecture, task_of_class
from .files import find, folder_of, is_checkpoint, read_weights

UNUSABLE = (  # Errors that transformers raises for configurations with values that it cannot use
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError),
    *(StrictDataclassError, TypeError, ValueError),
)

SIXTEEN_BITS = (torch.bfloat16, torch.float16)


def read_native_config(folder: Path) -> PreTrainedConfig:
    try:
        for path in (find(folder, CONFIG_NAME), find(folder, GENERATION_CONFIG_NAME)):
            if path is not None and not isinstance(read_json(path), dict):
                raise ConversionError(f"{str(path)!r} is no configuration")
        native = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if native.model_type == "ministral":  # so is a Mistral with layer_types read, in which they count
            native.architectures = [name.replace("Mistral", "Ministral") for name in native.architectures or ()]
        return native
    except ZooError:
        raise
    except UNUSABLE as error:
        lacks = f"{str(folder)!r} has no configuration that transformers reads"
        raise ConversionError(f"{lacks}: {first_line(error)}") from error


def open_folder(folder: Path, found: NativeFormat, native: PreTrainedConfig, task: str) -> PreTrainedModel:
    if find(folder, ADAPTER_CONFIG_NAME) is not None:
        raise ConversionError(f"{str(folder)!r} has an adapter next to its weights; merge it into them first")
    weights = unwrapped(read_weights(folder))
    checkpoint = Checkpoint(weights, name=str(folder))
    report_not_finite(checkpoint)
    model = build(weights, str(folder), found, native, task, native.dtype or checkpoint.dtype)
    if hasattr(model, "generation_config"):
        apart = find(folder, GENERATION_CONFIG_NAME) is not None
        model.generation_config = GenerationConfig.from_pretrained(folder) if apart else older_settings(folder, model)
    return model


def older_settings(folder: Path, model: Any) -> GenerationConfig:
    """Read settings of generation from config.json, where older checkpoints have them, next to ids of the model's."""
    try:
        saved = GenerationConfig.from_model_config(read_json(folder / CONFIG_NAME)).to_diff_dict()
        return GenerationConfig.from_dict({**model.generation_config.to_diff_dict(), **saved})
    except (ValueError, TypeError, AttributeError) as error:
        raise ConversionError(f"{str(folder)!r} has invalid settings of generation: {first_line(error)}") from error


def build(
    weights: dict[str, Tensor], name: str, found: NativeFormat, native: PreTrainedConfig, task: str, dtype: torch.dtype
) -> PreTrainedModel:
    """Build the class for a task around weights of any head, which transformers gives their present names."""
    if task not in found.classes:
        raise ConversionError(f"task={task!r} was given, {found.name} has {enumerate_names(found.classes)}")
    model_class: Any = getattr(transformers, class_names(found, native.model_type)[task])
    try:
        model, report = from_weights(model_class, native, weights, dtype)
    except UNUSABLE as error:
        failed = f"transformers cannot load {name!r} as {model_class.__name__}"
        raise ConversionError(f"{failed}: {first_line(error)}") from error
    if report:
        require_fit(report, name, model, found, task)
    if dtype in SIXTEEN_BITS:
        found.compute_in_float32(model)
    return model


def require_fit(report: dict[str, Any], name: str, model: PreTrainedModel, found: NativeFormat, task: str) -> None:
    """Refuse weights that a class lacks, and those that it would not read. Arguments as for `build`."""
    prefix, class_name = found.prefix if task == Task.FEATURE_EXTRACTION else "", type(model).__name__
    if missing := sorted({prefix + key for key in report.get("missing_keys", ())} - set(found.meaningless(task))):
        raise ConversionError(f"{name!r} lacks weights of {class_name}: {enumerate_names(missing)}")
    if wrong := report.get("mismatched_keys"):
        raise ConversionError(f"{name!r} has weights of the wrong shape: {wrong}")
    if unread := sorted(key for key in report.get("unexpected_keys", ()) if is_lost(key, model)):
        raise ConversionError(f"{name!r} has weights that {class_name} does not read: {enumerate_names(unread)}")


COMPUTED = ("bias", "masked_bias", "causal_mask", "rotary_emb")
"""Names of masks and of rotations, which older classes saved in every layer."""


def is_lost(key: str, model: PreTrainedModel) -> bool:
    """Whether a weight that a model does not read is one of a layer, or of a module with others."""
    path = key.removeprefix(f"{model.base_model_prefix}.").split(".")
    module: nn.Module = model if hasattr(model, path[0]) else model.base_model
    in_layer = False
    for part in path[:-1]:
        children = dict(module.named_children())
        if part not in children:
            predicted = getattr(model.config, "num_nextn_predict_layers", None) or 0
            after = isinstance(module, nn.ModuleList) and part.isdecimal() and int(part) >= len(module) + predicted
            return after or (in_layer and part not in COMPUTED)
        in_layer |= isinstance(module, nn.ModuleList)
        module = children[part]
        if any(True for _ in module.parameters(recurse=False)):
            return True
    return in_layer and path[-1] not in COMPUTED


def is_native(source: Any, origin: str | None = None) -> bool:
    """Whether a conversion starts from one of transformers' own classes."""
    if origin is not None:
        return origin in NATIVE
    return isinstance(source, PreTrainedModel) or (isinstance(source, str | os.PathLike) and is_checkpoint(source))


def convert_native(
    source: PreTrainedModel | str | os.PathLike[str], task: str | None = None, *, origin: str | None = None
) -> ZooPreTrainedModel:
    if isinstance(source, PreTrainedModel):
        found = format_of(source.config, origin, type(source).__name__)
        report_not_finite(Checkpoint(source.state_dict(), name=type(source).__name__))
        native, task = with_head(source, found, task)
        copies = native is source
    else:
        folder = folder_of(source)
        config = read_native_config(folder)
        found = format_of(config, origin, str(source))
        task = task or task_of_architecture(found, config, str(source))
        native, copies = open_folder(folder, found, config, task), False
    generation = copy.deepcopy(getattr(native, "generation_config", None))
    config, state = describe(found, native.config, native.state_dict(), task)
    name, seen = type(native).__name__, observe(native, config, task, found.output(config, task))
    state = {key: value.clone() for key, value in state.items()} if copies else state
    left = weakref.ref(native)
    del native
    if not copies and left() is not None:  # part of a cycle; weights are to be freed one by one while they are renamed
        gc.collect()
    try:
        model = model_with(config, task, found.key_map(config, task).forward(state, consume=True))
    except RuntimeError as error:
        raise ConversionError(f"weights of this {found.name} model do not fit its configuration: {error}") from error
    require_same(name, seen, model)
    if generation is not None and model.can_generate():
        model.generation_config = generation
    return model


def with_head(source: PreTrainedModel, found: NativeFormat, task: str | None) -> tuple[PreTrainedModel, str]:
    """Make sure that a live model has the head that was asked for, and computes what a loaded one does."""
    names = [cls.__name__ for cls in type(source).__mro__]
    own = None
    try:
        own = task_of_class(found, source.config, *names)
    except NoCounterpartError:
        if task is None:
            raise
    task = task or str(own)
    # Casting a model to 16 bits rounds computed buffers (rotary frequencies); a loaded one computes them again.
    is_rounded = source.dtype in SIXTEEN_BITS
    if task == own and not is_rounded:
        return source, task
    weights = {name: value.clone() for name, value in source.state_dict().items()}
    # The dtype of a configuration is the one that a model was loaded in.
    model = build(weights, names[0], found, source.config, task, source.dtype)
    if hasattr(model, "generation_config") and hasattr(source, "generation_config"):
        model.generation_config = source.generation_config
    return model, task


def describe(
    found: NativeFormat, native: PreTrainedConfig, tensors: dict[str, Tensor], task: str
) -> tuple[ZooConfig, dict[str, Tensor]]:
    """Settings of a native model in the zoo, and the native weights that its model needs."""
    read = found.read_config(native, task)
    stacks = {"is_decoder": found.stack == "decoder", "is_encoder_decoder": found.stack == "encoder-decoder"}
    settings = stacks | {name: value for name, value in read.items() if name not in LABELS}
    prefix = found.prefix if task == Task.FEATURE_EXTRACTION else ""  # weights are named as under a head
    named = {prefix + name: value for name, value in tensors.items()}
    state = dict(found.infer(native, found.read_weights(native, named, task), settings))
    config = build_config(found.variant, task, **settings)
    for field in [name for name in LABELS if name in read]:
        setattr(config, field, read[field])
    for difference in found.differences(native, read, config):
        warnings.warn(difference, LostInputWarning, stacklevel=2)
    return config, state
