"""Opens the folder of any checkpoint as a model of the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.utils import CONFIG_NAME

from zoo.base.errors import InvalidChoiceError, UnknownOverrideError
from zoo.base.files import read_mapping
from zoo.building.loading import load
from zoo.models import ZooPreTrainedModel
from zoo.models.configuration import MODEL_TYPE

OPTIONS = ("dtype", "attn_implementation")
"""Arguments for a converted model; a saved one takes all that `from_pretrained` does."""

DTYPES = ("float64", "float32", "bfloat16", "float16")


def open_folder(folder: Path, task: str | None = None, **options: Any) -> ZooPreTrainedModel:
    """Load a checkpoint of the zoo, or convert one of transformers' own classes."""
    model_type = read_mapping(folder / CONFIG_NAME).get("model_type")
    if not isinstance(model_type, str) or model_type == MODEL_TYPE:
        return load(folder, task, **options)
    owner = "loading a model of transformers' own classes, which is converted"
    UnknownOverrideError.check(*options, valid=OPTIONS, owner=owner)
    from .native.reading import convert_native

    dtype = options.get("dtype")
    name = "auto" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in ("auto", *DTYPES):
        raise InvalidChoiceError(str(dtype), ["auto", *DTYPES], kind="dtype")
    model = convert_native(folder, task)
    if name != "auto":
        model = model.to(dtype=getattr(torch, name))
    if options.get("attn_implementation") is not None:
        model.set_attn_implementation(options["attn_implementation"])
    return model
