"""Checkpoints of a run that may be interrupted: sealed when they are whole, and found again."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from zoo.base.errors import ConfigError, OutputExistsError, ZooWarning
from zoo.base.files import read_json, write_json
from zoo.base.folders import MODEL_FILE
from zoo.base.manifest import sha256_of

from .record import first_difference

SEAL = "run.json"  # The file of a checkpoint that is written last: its run, and the hashes of all other files

INCIDENTAL = re.compile(r"_.*|.*token_id|transformers_version|dtype|use_cache|architectures")
"""Fields of a configuration that may differ between a run and its continuation."""


class CheckpointWarning(ZooWarning):
    """A checkpoint that cannot be gone on from."""


def seal(checkpoint: str | Path, run: Mapping[str, Any]) -> None:
    """Declare a checkpoint whole."""
    folder = Path(checkpoint)
    vouched = (file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / SEAL)
    files = {file.relative_to(folder).as_posix(): sha256_of(file) for file in vouched}
    write_json(folder / SEAL, {"run": run, "files": files})


def damage(checkpoint: Path) -> str | None:
    """Find out why a checkpoint cannot be gone on from; None if it is whole."""
    try:
        sealed = read_json(checkpoint / SEAL)["files"].items()
    except OSError:
        return "it was never finished"
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"its {SEAL} cannot be read"
    for name, expected in sealed:
        try:
            if sha256_of(checkpoint / name) != expected:
                return f"its {name} is not what was written"
        except OSError:
            return f"its {name} is missing"
    return None


def best_of(checkpoint: Path) -> Path:
    """Find the checkpoint that was the best one when another was written."""
    best = read_json(checkpoint / TRAINER_STATE_NAME).get("best_global_step")
    return checkpoint.with_name(f"{PREFIX_CHECKPOINT_DIR}-{best}") if best else checkpoint


def checkpoints_in(folder: str | Path) -> list[Path]:
    numbered = [
        (int(number), path)
        for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if (number := path.name.rpartition("-")[2]).isdecimal()
    ]
    return [path for _, path in sorted(numbered, reverse=True)]


def last_checkpoint(folder: str | Path) -> str | None:
    """Find where a run that was interrupted can go on."""
    for checkpoint in checkpoints_in(folder):
        problem = damage(checkpoint)
        if problem is None and (best := best_of(checkpoint)) != checkpoint:
            problem = (found := damage(best)) and f"the best one before it, {best.name}, cannot be used: {found}"
        if problem is None:
            return str(checkpoint)
        warnings.warn(f"{checkpoint} is passed over: {problem}", CheckpointWarning, stacklevel=2)
    return None


def check_same_model(checkpoint: str | Path, model: PreTrainedModel) -> None:
    saved = read_json(Path(checkpoint) / MODEL_FILE)
    wanted = json.loads(model.config.to_json_string(use_diff=False))
    for field, value in saved.items():
        if field in wanted and wanted[field] != value and not INCIDENTAL.fullmatch(field):
            raise ConfigError(
                f"{checkpoint} is of another model: its {field} is {value!r}, where this one's is {wanted[field]!r}; "
                "give the settings of the interrupted run, or another output folder"
            )


def check_same_run(checkpoint: str | Path, run: Mapping[str, Any]) -> None:
    sealed = read_json(Path(checkpoint) / SEAL)["run"]
    wanted = json.loads(json.dumps(run))
    if sealed != wanted:
        processes = PartialState().num_processes
        difference = first_difference(per_process(sealed, processes), per_process(wanted, processes))
        difference = difference or first_difference(sealed, wanted)
        raise ConfigError(
            f"{checkpoint} is of another run: {difference}; give the settings of the interrupted run, another output "
            "folder, or begin again: --force without --resume"
        )


def per_process(run: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Divide a run's batch size, which is that of all processes, among the current ones."""
    arguments = dict(run.get("arguments", {}))
    arguments["per_device_train_batch_size"] = int(arguments.get("per_device_train_batch_size", 0)) // processes
    return {**run, "arguments": arguments}


def going_on_from(folder: str | Path, model: PreTrainedModel, run: Mapping[str, Any]) -> str | None:
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        check_same_model(checkpoint, model)
        check_same_run(checkpoint, run)
    elif checkpoints_in(folder):
        warnings.warn(
            f"no checkpoint in {folder} is whole; the run begins from the start", CheckpointWarning, stacklevel=2
        )
    return checkpoint


def clear_checkpoints(folder: str | Path, *, force: bool) -> None:
    """Remove checkpoints before a run that begins from the start."""
    if checkpoints_in(folder) and not force:
        raise OutputExistsError(
            f"{folder} holds checkpoints of an earlier run; go on from them (--resume), remove them (--force), or "
            "choose another output folder"
        )
    remove_except(folder, None)


def remove_except(folder: str | Path, kept: str | None) -> None:
    """Remove the checkpoints that a run cannot go on from, which would count among those that are kept."""
    for checkpoint in checkpoints_in(folder):
        if str(checkpoint) == kept:
            return
        shutil.rmtree(checkpoint)


def remove_checkpoints(folder: str | Path) -> None:
    """Remove the checkpoints of a finished run, and their folder where nothing else is in it."""
    remove_except(folder, None)
    with suppress(OSError):
        Path(folder).rmdir()
