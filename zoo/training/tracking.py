"""Reporting a run to those that draw it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import Trainer
from transformers.integrations import TensorBoardCallback, get_available_reporting_integrations

from zoo.base.errors import ConfigError, InvalidChoiceError

TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX"), "trackio": ("trackio",), "wandb": ("wandb",)}
"""What can be reported to, and the packages of which one is needed."""


def check_trackers(report_to: Any, installed: Callable[[str], Any] = find_spec) -> None:
    """Refuse to report to what is not installed."""
    named = [report_to] if isinstance(report_to, str) else list(report_to or ())
    for name in named:
        packages = TRACKERS.get(name, ())
        if packages and not any(installed(package) for package in packages):
            raise ConfigError(f"report_to={name} was given, but {name} is not installed: pip install {packages[0]}")
        if not packages and name not in ("none", "all", *get_available_reporting_integrations()):
            raise InvalidChoiceError(name, TRACKERS, kind="report_to")


def keep_logs(trainer: Trainer, output_dir: str | Path) -> None:
    """Let TensorBoard's files outlive the run: beside the model, in the folder `output_dir`-logs."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = f"{Path(output_dir).absolute()}-logs"
