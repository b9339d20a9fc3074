"""From a checkpoint to a model, with the right head by itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from safetensors import SafetensorError, safe_open
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from zoo import models
from zoo.errors import CheckpointError, UnknownTaskError, enumerate_names
from zoo.models import TASK_CLASSES, ZooPreTrainedModel
from zoo.models.configuration import MODEL_TYPE

if TYPE_CHECKING:
    from zoo.fast.generation import CachedGenerationMixin
    from zoo.models import (
        ZooForCausalLM,
        ZooForConditionalGeneration,
        ZooForMaskedLM,
        ZooForSequenceClassification,
        ZooForTokenClassification,
        ZooModel,
    )

    class ModelOfAnyTask(ZooPreTrainedModel, CachedGenerationMixin):
        """What type checkers take a model for whose task they cannot read off the call: it may generate."""


HUB_PREFIX = "hf-hub:"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^@]+)?")
PULLING = ".zoo-pull"
"""What a folder holds while a model is pulled into it."""

HUB_OPTIONS = ("revision", "cache_dir", "token", "offline", "force_download")
"""Arguments of [`zoo.pull`][] that `load` passes on."""


@overload
def load(path: str | Path, task: Literal["feature-extraction"], **kwargs: Any) -> ZooModel: ...
@overload
def load(path: str | Path, task: Literal["masked-lm"], **kwargs: Any) -> ZooForMaskedLM: ...
@overload
def load(path: str | Path, task: Literal["sequence-classification"], **kwargs: Any) -> ZooForSequenceClassification: ...
@overload
def load(path: str | Path, task: Literal["token-classification"], **kwargs: Any) -> ZooForTokenClassification: ...
@overload
def load(path: str | Path, task: Literal["causal-lm"], **kwargs: Any) -> ZooForCausalLM: ...
@overload
def load(path: str | Path, task: Literal["seq2seq-lm"], **kwargs: Any) -> ZooForConditionalGeneration: ...
@overload
def load(path: str | Path, task: str | None = None, **kwargs: Any) -> ModelOfAnyTask: ...
def load(path: str | Path, task: str | None = None, **kwargs: Any) -> ZooPreTrainedModel:
    """Load a checkpoint of the zoo, or a repository on the Hub.

    Args:
        path: A folder that `save_pretrained` wrote; or "org/name", "org/name@revision", "hf-hub:name". A repository
            with a model of transformers' own classes is converted.
        task: The head to load, by default the one that was saved.
        kwargs: As for `from_pretrained`: `dtype`, `device_map`, `attn_implementation`, ...; for a repository also
            `revision`, `cache_dir`, `token`, `offline` and `force_download` as for [`zoo.pull`][].

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: When the folder is missing, empty, truncated, or holds something else.
        MissingPluginError: When the variant, or a part, comes from a plugin that is not there.
        HubError: When a repository cannot be had.
        ZooError: When the configuration is not valid.
    """
    folder, converted = Path(path), None
    if is_repository(path):
        folder, converted = from_hub(str(path), task, kwargs)
    if converted is not None:
        return converted
    saved = read_config(folder)
    check_weights(folder)
    model_class = saved_class(folder, saved) if task is None else class_of_task(task)
    model, info = model_class.from_pretrained(folder, output_loading_info=True, **kwargs)
    wrong = sorted(info["missing_keys"]) if task is None else []
    if wrong:
        raise CheckpointError(f"{folder} lacks weights of its {model_class.__name__}: {enumerate_names(wrong)}")
    return model.eval()


def is_repository(path: str | Path) -> bool:
    """Whether a repository is meant rather than a folder.

    Args:
        path: What was given.

    Returns:
        True for "hf-hub:..." and for "org/name" where there is no such folder.
    """
    return isinstance(path, str) and (
        path.startswith(HUB_PREFIX) or (REPOSITORY.fullmatch(path) is not None and not Path(path).exists())
    )


def from_hub(name: str, task: str | None, kwargs: dict[str, Any]) -> tuple[Path, Any]:
    """Pull a repository.

    Args:
        name: Its name.
        task: The head to load.
        kwargs: Arguments of `load`, of which those for the Hub are taken out.

    Returns:
        Its folder, and a model where it had to be converted.

    Raises:
        HubError: When it cannot be had.
    """
    from zoo.hub import pull

    folder = pull(name, **{key: kwargs.pop(key) for key in HUB_OPTIONS if key in kwargs})
    if json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8")).get("model_type") == MODEL_TYPE:
        return folder, None
    from zoo.converters import convert

    model = convert(folder, **({} if task is None else {"task": task}))
    return folder, model.to(dtype=kwargs["dtype"]) if isinstance(kwargs.get("dtype"), torch.dtype) else model


def read_config(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's configuration.

    Args:
        folder: The checkpoint.

    Returns:
        What its config.json says.

    Raises:
        CheckpointError: When there is none, or it is not one of the zoo's.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a checkpoint is a folder that save_pretrained wrote")
    file = folder / CONFIG_NAME
    if not file.is_file():
        found = enumerate_names(sorted(entry.name for entry in folder.iterdir()))
        pulled = "; a pull into it was interrupted, pull it again" if (folder / PULLING).is_dir() else ""
        raise CheckpointError(f"{folder} has no {CONFIG_NAME}, so it is no checkpoint; it holds: {found}{pulled}")
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON: {error}") from error
    model_type = saved.get("model_type") if isinstance(saved, dict) else None
    if model_type != MODEL_TYPE:
        raise CheckpointError(
            f"{folder} holds a model of type {model_type!r}, zoo.load reads {MODEL_TYPE!r}; "
            "zoo.convert reads other models"
        )
    return saved


def check_weights(folder: Path) -> None:
    """Require whole safetensors files.

    Args:
        folder: The checkpoint.

    Raises:
        CheckpointError: When there are none, or one is missing or truncated.
    """
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    try:
        files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else []
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} is not a valid index of weight files: {error}") from error
    for name in files or [SAFE_WEIGHTS_NAME]:
        file = folder / name
        if Path(name).name != name:
            raise CheckpointError(f"{index} names {name!r}, which is not a file of its own folder")
        if not file.is_file():
            raise CheckpointError(f"{folder} has no {name}; weights are read from safetensors files only")
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is truncated or damaged: {error}") from error


def saved_class(folder: Path, saved: dict[str, Any]) -> type[ZooPreTrainedModel]:
    """Find the class that was saved.

    Args:
        folder: The checkpoint, for the message.
        saved: Its configuration.

    Returns:
        One of the heads or bodies.

    Raises:
        CheckpointError: When the configuration names none of them.
    """
    architectures = saved.get("architectures") or [None]
    model_class = getattr(models, str(architectures[0]), None)
    if not (isinstance(model_class, type) and issubclass(model_class, ZooPreTrainedModel)):
        valid = enumerate_names(sorted({saved_as.__name__ for _, saved_as in TASK_CLASSES.values()}))
        raise CheckpointError(
            f"{folder} was saved as {architectures[0]!r}, which is none of the zoo's classes: {valid}"
        )
    return model_class


def class_of_task(task: str) -> type[ZooPreTrainedModel]:
    """Find the class of a task.

    Args:
        task: The task's name.

    Returns:
        Its class.

    Raises:
        UnknownTaskError: When there is no such task.
    """
    if task not in TASK_CLASSES:
        raise UnknownTaskError(task, TASK_CLASSES)
    return TASK_CLASSES[task][1]
