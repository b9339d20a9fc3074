"""From a checkpoint to a model, with the right head by itself."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.integrations import PeftAdapterMixin
from transformers.modeling_utils import EmbeddingAccessMixin, ModuleUtilsMixin, PushToHubMixin
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, GENERATION_CONFIG_NAME

from zoo.base.errors import (
    CheckpointError,
    ConfigError,
    UnknownOverrideError,
    UnknownTaskError,
    ZooWarning,
    enumerate_names,
)
from zoo.base.files import read_object
from zoo.base.folders import RECORD_FILE
from zoo.base.formats import BUNDLE, DISTRIBUTION
from zoo.base.manifest import CODE_FILE, check_code
from zoo.building.fingerprints import check_fingerprint, recorded_fingerprint
from zoo.models import TASK_CLASSES, ZooConfig, ZooForCausalLM, ZooModel, ZooPreTrainedModel, api
from zoo.models.checkpoint_files import check_described, checked_before_reading, saved_shapes, weight_files
from zoo.models.configuration import MODEL_TYPE
from zoo.registry import Task

TYPE_CHECKING = False  # for jedi
if TYPE_CHECKING:
    from typing import TypeAlias

    from zoo.fast.generation import CachedGenerationMixin

    class ModelOfAnyTask(ZooPreTrainedModel, CachedGenerationMixin):
        """Static return type when the task is not a literal: it may generate."""

    AnyModel: TypeAlias = ZooPreTrainedModel
else:

    class AnyModel(nn.Module, PushToHubMixin, PeftAdapterMixin, ModuleUtilsMixin, EmbeddingAccessMixin):
        """A model as jedi sees it, which takes minutes to read all of `PreTrainedModel`, and then fails."""

        config: ZooConfig
        forward = ZooForCausalLM.forward
        generate = GenerationMixin.generate
        save_pretrained = PreTrainedModel.save_pretrained
        resize_token_embeddings = PreTrainedModel.resize_token_embeddings
        gradient_checkpointing_enable = PreTrainedModel.gradient_checkpointing_enable
        set_attn_implementation = PreTrainedModel.set_attn_implementation


PULLING = ".zoo-pull"  # Lock and temporary files of a folder into which a model is pulled

SIZES = ("num_labels", "vocab_size", "decoder_vocab_size")
"""Fields that may be changed when a checkpoint is loaded: its head and its embeddings are new then."""

LOADING = ("dtype", "device_map", "attn_implementation", "variant")
"""Options of `from_pretrained` that are asked for most; it takes fields of the configuration as well."""


class NewHeadWarning(ZooWarning):
    """A part of a model that its checkpoint does not have is random."""


def load(folder: Path, task: str | None = None, **kwargs: Any) -> ZooPreTrainedModel:
    """Load a checkpoint of the zoo from its folder, as [`zoo.load`][] does.

    With another number of labels or vocabulary, the head or the embeddings are new, with a `NewHeadWarning`.
    """
    config = saved_config(folder)
    if (folder / ADAPTER_CONFIG_NAME).is_file():
        raise CheckpointError(f"{folder} has an adapter next to its weights; merge it into them first")
    shapes = saved_shapes(weight_files(folder, variant := kwargs.get("variant")))
    saved_as = saved_class(folder, config)
    model_class = saved_as if task is None else class_of_task(task)
    has_names = not hasattr(config, "quantization_config")  # quantised weights have other names and shapes
    if has_names and not config.share_layers and config.num_hidden_layers > len(shapes):  # they take long to build
        raise CheckpointError(f"{folder} lacks weights: it has {len(shapes)} for {config.num_hidden_layers} layers")
    as_saved = model_class is saved_as and has_names and kwargs.keys() <= {"verify", "variant"}
    if has_names and not as_saved:
        check_weights(folder, config, shapes)
    if kwargs.setdefault("verify", True) and (folder / CODE_FILE).is_file():
        check_code(folder)
    recorded = recorded_fingerprint(record) if (record := folder / RECORD_FILE).is_file() else ()
    if not as_saved:
        if recorded:
            check_fingerprint(saved_as.from_pretrained(folder, variant=variant, verify=True), recorded, folder)
        return load_with(folder, config, model_class, task, kwargs)
    with checked_before_reading(folder, shapes) as expected:
        model: ZooPreTrainedModel = model_class.from_pretrained(folder, config=config, **kwargs)
    if not expected.is_checked:  # by a transformers that loads in another way
        check_described(model, shapes, folder)
    if recorded:
        check_fingerprint(model, recorded, folder)
    return model


def load_with(
    folder: Path, config: ZooConfig, model_class: type[ZooPreTrainedModel], task: str | None, options: dict[str, Any]
) -> ZooPreTrainedModel:
    """Load a checkpoint for another task or with options, which may leave some weights new and random."""
    sizes = changed_sizes(config, options)
    changed = {name: one for name, one in options.items() if name not in LOADING and one != getattr(config, name, one)}
    asked = ", ".join(f"{name}={value}" for name, value in {**sizes, **changed}.items()) or f"the task is {task}"
    loading = {"ignore_mismatched_sizes": bool(sizes), **options, "output_loading_info": True}
    try:
        model, loaded = model_class.from_pretrained(folder, **loading)
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in options:
            raise
        fields = sorted(field.name for field in dataclasses.fields(ZooConfig))
        raise UnknownOverrideError(unknown[1], [*LOADING, *fields], owner="loading a checkpoint") from error
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        problem = f"{folder} has weights of other sizes than {asked} asks for"
        raise CheckpointError(f"{problem}; what may be changed is {', '.join(SIZES)}") from error
    new = sorted({*loaded["missing_keys"], *(name for name, *_ in loaded["mismatched_keys"])})
    if new:
        message = f"these weights are new and random, because {asked}: {enumerate_names(new)}; the rest is {folder}'s"
        warnings.warn(message, NewHeadWarning, stacklevel=5)
    if unread := sorted(name for name in loaded["unexpected_keys"] if changed and (task is None or "layers." in name)):
        message = f"these weights of {folder} are left out, because {asked}: {enumerate_names(unread)}"
        warnings.warn(message, ZooWarning, stacklevel=5)
    return model


def changed_sizes(config: ZooConfig, options: Mapping[str, Any]) -> dict[str, int]:
    """Find the given sizes of heads and embeddings that differ from the checkpoint's."""
    asked = {name: options[name] for name in SIZES if options.get(name) is not None}
    if options.get("id2label") is not None:
        asked["num_labels"] = len(options["id2label"])
    return {name: value for name, value in asked.items() if value != getattr(config, name)}


def other_content(folder: Path) -> str:
    """Describe what a folder without a configuration holds, if it is known."""
    if (folder / PULLING).is_dir():
        return "; a pull into it was interrupted, pull it again"
    if (folder / ADAPTER_CONFIG_NAME).is_file():
        merged = "PeftModel.from_pretrained(model, folder).merge_and_unload()"
        return f"; it holds an adapter of PEFT: {merged} makes a model that can be saved"
    return ""


def saved_config(folder: Path) -> ZooConfig:
    """Read a checkpoint's configuration, and require it to be valid."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a checkpoint is a folder that save_pretrained wrote")
    file = folder / CONFIG_NAME
    if not file.is_file():
        raise CheckpointError(f"{folder} has no {CONFIG_NAME}, so it is no checkpoint{other_content(folder)}")
    saved = read_object(file)
    if (model_type := saved.get("model_type")) != MODEL_TYPE:
        problem = f"{folder} holds a model of type {model_type!r}, zoo.load reads {MODEL_TYPE!r}"
        raise CheckpointError(f"{problem}; zoo.convert reads other models")
    if (generation := folder / GENERATION_CONFIG_NAME).is_file():
        read_object(generation)  # transformers reads none of a damaged file
    if (bundle := folder / BUNDLE.place).is_file():
        content = read_object(bundle)
        BUNDLE.check(content, bundle, content.get(DISTRIBUTION))
    try:
        config: ZooConfig = ZooConfig.from_dict(saved)
    except ConfigError as error:
        if type(error) is not ConfigError:
            raise
        raise CheckpointError(f"{file}: {error}") from error
    return config


def check_weights(folder: Path, config: ZooConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Require the weights that the configuration describes."""
    with torch.device("meta"), init.no_init_weights():  # random numbers would be overwritten, and take half of the time
        model = saved_class(folder, config)(config)
    model.tie_weights(recompute_mapping=False)
    check_described(model, shapes, folder)


def saved_class(folder: Path, config: ZooConfig) -> type[ZooPreTrainedModel]:
    architectures = config.architectures or [None]
    model_class = getattr(api, str(architectures[0]), None)
    if not (isinstance(model_class, type) and issubclass(model_class, ZooPreTrainedModel)):
        valid = enumerate_names(sorted({saved_as.__name__ for _, saved_as in TASK_CLASSES.values()}))
        problem = f"{folder} was saved as {architectures[0]!r}, which is none of the zoo's classes"
        raise CheckpointError(f"{problem}: {valid}")
    return model_class


def class_of_task(task: str) -> type[ZooPreTrainedModel]:
    UnknownTaskError.check(task, valid=TASK_CLASSES)
    return TASK_CLASSES[task][1]


def task_of_class(model_class: type) -> str:
    """The task that a model class is for; feature-extraction for bodies, and for other code's classes."""
    heads = (task for task, (_, head) in TASK_CLASSES.items() if head is not ZooModel and issubclass(model_class, head))
    return next(heads, Task.FEATURE_EXTRACTION.value)
