"""Trains the same small model again and again, each time in a forked process, some of which are killed.

    python interrupted.py FOLDER

Forking after the imports saves most of the time; nothing has used a thread before.
"""

import os
import random
import resource
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import logging

from zoo.data.tasks import TASKS, Splits
from zoo.training import UnwritableError, train
from zoo.training.checkpoints import last_checkpoint
from zoo.training.trainer import ZooTrainer

ARGUMENTS = {
    "settings": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    "generation": {"num_beams": 1, "max_length": 4},
    "tokenizer": {"kind": "word", "min_frequency": 1},
    "per_device_train_batch_size": 8,
    "max_steps": 12,
    "warmup_steps": 1,
    "logging_steps": 2,
    "progress": False,
    "use_cpu": True,
    "full_determinism": True,
    "save_strategy": "steps",
    "save_steps": 3,
    "save_total_limit": 2,
}


def run(folder: Path, **changed: object) -> dict[str, Tensor]:
    """Train, and read the weights that were saved."""
    pairs = TASKS.get("translation").load().train
    data = Splits(pairs.select(range(40)), pairs.select(range(40, 44)))
    arguments = {**ARGUMENTS, "resume": True, "force": True, **changed}
    result = train("pre-norm:dropout=0.2", data=data, output_dir=folder, **arguments)
    (folder / "tokens").write_text(str(result.report.train_tokens))
    return load_file(folder / "model.safetensors")


def in_child(folder: Path) -> int:
    """Train in a process of its own; returns the signal that ended it."""
    child = os.fork()
    if child == 0:
        run(folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*args: object, **kwargs: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at_a_step(folder: Path, step: int) -> None:
    """Kill a run in the middle of an update."""

    def training_step(trainer: ZooTrainer, *args: object) -> Tensor:
        if trainer.state.global_step == step:
            die()
        return whole_step(trainer, *args)

    whole_step, ZooTrainer.training_step = ZooTrainer.training_step, training_step
    assert in_child(folder) == -signal.SIGKILL
    ZooTrainer.training_step = whole_step


def killed_in_a_save(folder: Path, step: int) -> None:
    """Kill a run when a checkpoint's model is written and the optimiser's state is half written."""

    def save(trainer: ZooTrainer, output_dir: str) -> None:
        if trainer.state.global_step == step:
            Path(output_dir, "optimizer.pt").write_bytes(b"PK\x03\x04 half of a state")
            die()
        whole_save(trainer, output_dir)

    whole_save = ZooTrainer._save_optimizer_and_scheduler
    ZooTrainer._save_optimizer_and_scheduler = save
    assert in_child(folder) == -signal.SIGKILL
    ZooTrainer._save_optimizer_and_scheduler = whole_save
    assert not (Path(f"{folder}-checkpoints") / f"checkpoint-{step}" / "trainer_state.json").exists()


def disk_full(folder: Path) -> str:
    """Forbid large files after two checkpoints, as a full disk would."""

    def save(trainer: ZooTrainer, *args: object) -> None:
        if trainer.state.global_step == 9:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        whole_save(trainer, *args)

    whole_save, ZooTrainer._save_checkpoint = ZooTrainer._save_checkpoint, save
    try:
        run(folder)
    except UnwritableError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ZooTrainer._save_checkpoint = whole_save
    return ""


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def main(folder: Path) -> None:
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    step = random.randrange(1, 12)
    print(f"killed at step {step}")
    killed_at_a_step(folder / "step", step)
    killed_in_a_save(folder / "save", 9)
    message = disk_full(folder / "disk")
    assert message.startswith(f"{folder}/disk-checkpoints/checkpoint-9 cannot be written: "), message
    assert message.endswith(f"{folder}/disk-checkpoints/checkpoint-6 is intact"), message
    assert len(message.splitlines()) == 1
    left = sorted(path.name for path in (folder / "disk-checkpoints").iterdir())
    assert left == ["checkpoint-3", "checkpoint-6"], left
    state = folder / "disk-checkpoints" / "checkpoint-6" / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert last_checkpoint(folder / "disk-checkpoints") == str(folder / "disk-checkpoints" / "checkpoint-3")
    whole = run(folder / "whole", save_strategy="no", resume=False)
    for name in ("step", "save", "disk"):
        assert same(run(folder / name), whole), name
        assert (folder / name / "tokens").read_text() == (folder / "whole" / "tokens").read_text(), name
    print("all equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
