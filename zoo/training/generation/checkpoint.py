"""A model and its tokenizers, from the folder that holds both."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.base.folders import TOKENIZER_FILE
from zoo.building.loading import load
from zoo.building.weights import locate
from zoo.converters.weights import task_of
from zoo.data.tokenizers import Tokenizers, load_tokenizers
from zoo.data.tokenizers.pairs import read_tokenizer
from zoo.models.wrapped import running_model

from .engines import TORCH, TORCH_INT8, is_exported, load_for

TokenizerSource: TypeAlias = str | Path | Tokenizers | PreTrainedTokenizerFast


def load_checkpoint(
    model: str | Path | PreTrainedModel,
    *,
    tokenizer: TokenizerSource | None = None,
    device: str | torch.device | None = None,
    engine: str | None = None,
    task: str | None = None,
) -> tuple[PreTrainedModel, Tokenizers]:
    """Load a model of any form and its tokenizers, on the GPU if available; `task` chooses if there are two."""
    check_device(device)
    folder: TokenizerSource
    if isinstance(model, (str, Path)):
        found = locate(model)
        if torch.device(device or "cpu").type != "cpu" and is_exported(found, engine):
            raise ConfigError(f"device={device} was given, and exports run on the CPU: leave it out")
        loaded = load_for(found, engine)
        if task is not None and getattr(loaded.config, "masked_next_token", False) and task_of(loaded) != task:
            loaded = load(found, task=task)
        folder = tokenizer if tokenizer is not None else found
        device = device or ("cuda" if torch.cuda.is_available() and engine != TORCH_INT8 else "cpu")
    else:
        loaded = running_model(model)
        kind = type(loaded).__name__
        if engine not in (None, TORCH):
            raise ConfigError(f"engine={engine} was given with a {kind}, which is loaded already: give the checkpoint")
        if tokenizer is None:
            raise ConfigError(f"a {kind} was given without a tokenizer; give tokenizer=, or the checkpoint")
        folder = tokenizer
    tokenizers = read_tokenizers(folder, causal=not loaded.config.is_encoder_decoder)
    return (loaded.to(device) if device is not None else loaded).eval(), tokenizers


def check_device(device: str | torch.device | None) -> None:
    """Refuse a device that is not here, before anything is loaded."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from builds of PyTorch for other devices
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        kind = "cpu" if accelerator is None else accelerator.type
        here = {"cpu", kind, *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))}
        raise InvalidChoiceError(str(device), sorted(here), kind="device") from error


def read_tokenizers(source: TokenizerSource, *, causal: bool) -> Tokenizers:
    """Load tokenizers, unless they are loaded already."""
    if isinstance(source, Tokenizers):
        return source
    if not isinstance(source, (str, Path)):
        return Tokenizers(source, source)
    if causal and (Path(source) / TOKENIZER_FILE).is_file():
        only = read_tokenizer(Path(source))
        return Tokenizers(only, only)
    return load_tokenizers(source)
