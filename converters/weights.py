"""The weights of a model of the zoo under the same names with any head, and back."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

from zoo.base.files import read_json
from zoo.building.loading import task_of_class
from zoo.models import TASK_CLASSES, ZooConfig, ZooPreTrainedModel
from zoo.models.borrowing import borrowed_by
from zoo.models.checkpoint_files import without_progress_bars
from zoo.registry import Task

from .engine import EngineModel

PREFIX = "model."  # Prefix of names of a body in a model with a head

TABLES = ("learned", "sinusoidal")
"""Prefixes of names of position tables, in the zoo or in the formats that it exports to."""


def task_of(model: PreTrainedModel) -> str:
    """The task of a model, of an export too; feature-extraction for classes of other code."""
    return model.task if isinstance(model, EngineModel) else task_of_class(type(model))


def weights_of(model: ZooPreTrainedModel) -> dict[str, Tensor]:
    """The weights of a model, every shared one under all of its names."""
    prefix = PREFIX if task_of(model) == Task.FEATURE_EXTRACTION else ""
    return {prefix + name: value.detach() for name, value in under_all_names(model).items()}


def under_all_names(model: nn.Module) -> dict[str, Tensor]:
    """A model's state_dict, with the parameters of borrowed modules under the borrower's names as well."""
    found: dict[str, Tensor] = model.state_dict(keep_vars=True)
    for path, module in model.named_modules(remove_duplicate=False):
        for name, lent in borrowed_by(module).items():
            found |= {f"{path}.{name}.{inner}": value for inner, value in lent.named_parameters()}
    return found


def without_further_tokens(model: ZooPreTrainedModel) -> tuple[ZooPreTrainedModel, tuple[str, ...]]:
    """Leave out what predicts further tokens in training, which no other code has a place for."""
    if not (notes := further_tokens_left_out(model.config, task_of(model))):
        return model, ()
    config = copy.deepcopy(model.config)
    config.num_nextn_predict_layers = 0
    weights = {name: value for name, value in weights_of(model).items() if not name.startswith("mtp.")}
    made = model_with(config, Task.CAUSAL_LM, weights)
    made.generation_config = model.generation_config
    return made, notes


def further_tokens_left_out(config: ZooConfig, task: str) -> tuple[str, ...]:
    """State that what predicts further tokens in training is left out of an export, if the model has it."""
    depth = config.prediction_depth if task == Task.CAUSAL_LM else 0
    return (f"The modules of num_nextn_predict_layers={depth}, which only train, are left out.",) if depth else ()


def change_config(folder: Path, changes: Mapping[str, Any]) -> None:
    path = folder / CONFIG_NAME
    saved = {**read_json(path), **changes}
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def save_settings(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write the configuration by which an export is a model again, and how it generates."""
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = torch.float32
    if hasattr(config, "output_router_logits"):  # an export has none
        config.output_router_logits = False
    config.save_pretrained(folder)
    save_generation(model, folder)


def save_generation(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write how a model generates, if it does, also what transformers would warn of or not write."""
    if not model.can_generate():
        return
    settings = copy.deepcopy(model.generation_config)
    if settings.max_length is None and settings.max_new_tokens is None:
        settings.max_length = longest(model)
    (folder / GENERATION_CONFIG_NAME).write_text(settings.to_json_string(), encoding="utf-8")


def longest(model: ZooPreTrainedModel) -> int | None:
    """How many positions the tables of a model have, computed ones included, since other code stores those too."""
    config = model.config
    stacks = [config, config.decoder_config()] if config.is_encoder_decoder else [config]
    rows = [stack.max_position_embeddings for stack in stacks if stack.position.startswith(TABLES)]
    return min(rows, default=None)


def traceable(model: ZooPreTrainedModel) -> ZooPreTrainedModel:
    """The same model in float32 on eager attention, with operators that every runtime has."""
    made = in_dtype(model, "float32", eager=True)
    for module in made.modules():  # both stacks of an encoder-decoder have their own
        if hasattr(getattr(module, "config", None), "output_router_logits"):
            module.config.output_router_logits = False
    return made


def in_dtype(model: ZooPreTrainedModel, dtype: str, *, eager: bool = False) -> ZooPreTrainedModel:
    """The same model in another type, with recomputed buffers: casting them would keep their rounding errors."""
    weights = {name: value.to("cpu", getattr(torch, dtype)) for name, value in weights_of(model).items()}
    made = model_with(copy.deepcopy(model.config), task_of(model), weights)
    if eager:
        made.set_attn_implementation("eager")
    return made


def model_with(config: ZooConfig, task: str, weights: dict[str, Tensor]) -> ZooPreTrainedModel:
    if task == Task.FEATURE_EXTRACTION:
        weights = {name.removeprefix(PREFIX): value for name, value in weights.items()}
    dtype = next(iter(weights.values())).dtype
    model_class = TASK_CLASSES[task][1]
    with torch.device("meta"):
        shell = model_class(config)
        expected, listed = under_all_names(shell), shell.state_dict(keep_vars=True)
    problems = sorted(expected.keys() ^ weights.keys())
    problems += [name for name in expected.keys() & weights.keys() if expected[name].shape != weights[name].shape]
    if problems:
        raise RuntimeError(f"weights that do not fit: {', '.join(problems)}")
    model, left = from_weights(model_class, config, {name: weights[name] for name in listed}, dtype)
    if left:
        raise RuntimeError(f"weights that were not loaded: {left}")
    return model


def from_weights(
    model_class: Any, config: Any, weights: dict[str, Tensor], dtype: torch.dtype
) -> tuple[Any, dict[str, Any]]:
    """Make a model of weights in memory, without a progress bar, and list the keys that transformers reports."""
    with without_progress_bars():
        options = {"config": config, "state_dict": weights, "dtype": dtype, "output_loading_info": True}
        model, report = model_class.from_pretrained(None, **options)
    return model.eval(), {word: keys for word, keys in report.items() if keys}
