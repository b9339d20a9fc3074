"""Kills training in the middle of an update and of a checkpoint, fills its disk, and looks whether anybody could tell.

python interrupted.py FOLDER
"""

import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from kills import differences, ending, in_child, run, whole
from transformers.utils import logging

from zoo.training import UnwritableError
from zoo.training.checkpoints import last_checkpoint
from zoo.training.trainer import ZooTrainer

SETTING = "translation"


def before(method: str, step: int, act: Callable[..., object]) -> Any:
    """Call a function before a method of the trainer once this many updates have been made."""

    def changed(trainer: ZooTrainer, *given: Any) -> Any:
        if trainer.state.global_step == step:
            act(*given)
        return plain(trainer, *given)

    plain = getattr(ZooTrainer, method)
    return patch.object(ZooTrainer, method, changed)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def half_a_state(output_dir: str) -> None:
    """Die when a checkpoint's model is written and the optimiser's state is half written."""
    Path(output_dir, "optimizer.pt").write_bytes(b"PK\x03\x04 half of a state")
    die()


def no_room(*_: object) -> None:
    """Forbid large files, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def main(folder: Path) -> None:
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    step = random.randrange(1, 13)
    print(f"killed at step {step}")
    for name, *at in (("step", "training_step", step, die), ("save", "_save_optimizer_and_scheduler", 9, half_a_state)):
        with before(*at):
            child, _begun = in_child(folder / name, SETTING)
        assert ending(child) == -signal.SIGKILL, name
    assert not (folder / "save/model-checkpoints/checkpoint-9/trainer_state.json").exists()
    checkpoints = folder / "disk/model-checkpoints"
    try:
        with before("_save_checkpoint", 9, no_room):
            run(folder / "disk", SETTING, print)
    except UnwritableError as error:
        message = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert message.startswith(f"{checkpoints}/checkpoint-9 cannot be written: "), message
    assert message.endswith(f"{checkpoints}/checkpoint-6 is intact") and "\n" not in message, message
    assert sorted(os.listdir(checkpoints)) == ["checkpoint-3", "checkpoint-6"]
    state = checkpoints / "checkpoint-6" / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-3")
    whole(folder / "whole", SETTING)
    for name in ("step", "save", "disk"):
        run(folder / name, SETTING, print)
        assert differences(folder / name, folder / "whole") == [], name
    print("all equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
