"""From names and values to transformers' training arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import Seq2SeqTrainingArguments

from zoo.errors import ConfigError, UnknownOverrideError

DEFAULTS: dict[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_steps": 20,
    "logging_nan_inf_filter": False,
    "report_to": "none",
}
"""Where the zoo differs from transformers."""


def training_arguments(
    given: Mapping[str, Any], *, output_dir: str | Path, seed: int, progress: bool = True
) -> Seq2SeqTrainingArguments:
    """Make transformers' training arguments.

    Args:
        given: Fields of `Seq2SeqTrainingArguments`.
        output_dir: Where checkpoints go.
        seed: The seed, unless `given` has one.
        progress: Whether to show progress bars.

    Returns:
        The arguments; on a GPU that has it, in bfloat16.

    Raises:
        UnknownOverrideError: When there is no such argument.
        ConfigError: When a value is not valid.
    """
    valid = [field.name for field in fields(Seq2SeqTrainingArguments) if field.init]
    for name in given:
        if name not in valid:
            raise UnknownOverrideError(name, valid, owner="Seq2SeqTrainingArguments")
    cuda = torch.cuda.is_available() and not given.get("use_cpu", False)
    device = {"bf16": cuda and torch.cuda.is_bf16_supported(), "dataloader_pin_memory": cuda}
    settings = {
        "output_dir": str(output_dir),
        "seed": seed,
        "disable_tqdm": not progress,
        **DEFAULTS,
        **device,
        **given,
    }
    try:
        return Seq2SeqTrainingArguments(**settings)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"training arguments are not valid: {error}") from error
