"""Held-out examples: those of a run's training once more, or others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset

from zoo.base.errors import ConfigError, ZooError
from zoo.data.corpora import located
from zoo.data.tasks import DataTask
from zoo.data.tasks.tables import Column

from .record import RunRecord, digest_of_examples

OWN_DATA = "the zoo's own corpus"
"""What examples are called that ship with a task, or that it makes."""


def examples_of_run(run: RunRecord | None, task: DataTask, model: str) -> tuple[Dataset, str]:
    """Load the held-out examples of a model's training."""
    shipped = f"; those that ship with the zoo are in {task.shipped}" if task.shipped is not None else ""
    how = f"name the examples to evaluate on: --data FILE|FOLDER or --heldout FILE{shipped}"
    if task.makes_examples and (run is None or run.recipe.task != task.name):
        return task.load().heldout, OWN_DATA  # whoever names the task has named them
    if run is None:
        raise ConfigError(f"nothing says on which data {model} was trained; {how}")
    if run.recipe.task != task.name:
        raise ConfigError(f"{model} was trained on {run.recipe.task}, and not on {task.name}; {how}")
    source = run.data.source
    if source is None:
        raise ConfigError(f"{model} was trained on examples that were given as objects, and are not here; {how}")
    place, whose = source.heldout or source.data, f"the held-out examples of {model}'s training"
    try:
        examples = task.load_from(source).heldout
    except ZooError as error:
        raise ConfigError(
            f"the held-out examples of {model}'s training cannot be read again: {error}; {how}"
        ) from error
    if digest_of_examples(examples) != run.data.heldout.sha256:
        raise ConfigError(f"{whose} are not what they were: {place or OWN_DATA} has changed; {how}")
    return examples, file_name(place)


def named_examples(
    task: DataTask, data: str | Path | None, heldout: str | Path | None, columns: Sequence[Column] | None
) -> Dataset:
    """Load examples that were named."""
    data = None if data is None else located(data)
    whole = heldout if heldout is not None else data if data is not None and Path(data).is_file() else None
    return task.load(data if data is not None else heldout, heldout=whole, columns=columns).heldout


def columns_of(run: RunRecord | None) -> Sequence[Column] | None:
    """Find which columns a run was told to read."""
    return None if run is None or run.data.source is None else run.data.source.columns


def file_name(place: str | None) -> str:
    """Write what data are called."""
    return OWN_DATA if place is None else Path(place).name if Path(place).is_absolute() else place
