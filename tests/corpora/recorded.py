"""Records what every update of a run reads: `torchrun recorded.py FOLDER DATA PROCESSES STEPS OPTIONS`."""

import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from accelerate import PartialState
from preloaded import run_ranks
from torch import Tensor
from transformers.utils import logging

from zoo.training import train
from zoo.training.trainer import ZooTrainer

TOGETHER = 8
SETTINGS = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "dropout": 0.0},
    "attention_dropout": 0.0,
}


def run(folder: Path, data: Path | str, processes: int, steps: int, *, accumulation: int = 1, **more: Any) -> list[Any]:
    """Train for some updates: the number of the update and the ids of every block that this process has read."""
    seen: list[Any] = []
    step = ZooTrainer.training_step

    def training_step(trainer: ZooTrainer, model: Any, inputs: dict[str, Any], *args: Any) -> Tensor:
        seen.extend((trainer.state.global_step, block) for block in inputs["input_ids"].tolist())
        return step(trainer, model, inputs, *args)

    ZooTrainer.training_step = training_step  # type: ignore[method-assign]
    try:
        train(
            more.pop("model", "gpt2-style"),
            more.pop("task", "language-modeling:block_size=16"),
            data=data,
            output_dir=folder,
            settings=SETTINGS,
            **{"per_device_train_batch_size": TOGETHER // processes // accumulation, "max_steps": steps},
            **{"gradient_accumulation_steps": accumulation},
            **{"warmup_steps": 0, "lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 2},
            **{"scored": False, "progress": False, **more},
        )
    finally:
        ZooTrainer.training_step = step  # type: ignore[method-assign]
    return seen


def by_update(seen: list[Any]) -> dict[int, list[Any]]:
    updates = defaultdict(list)
    for number, block in seen:
        updates[number].append(block)
    return {number: sorted(blocks) for number, blocks in updates.items()}


def keeping_checkpoints() -> Any:
    """Let a run end as if it were killed before it removes its checkpoints."""
    return patch("zoo.training.training.remove_checkpoints", lambda folder: None)


def forget_after(folder: Path, step: int) -> None:
    """Leave a run as if it had been killed after an update."""
    for place in Path(f"{folder}-checkpoints").glob("checkpoint-*"):
        if int(place.name.rpartition("-")[2]) > step:
            shutil.rmtree(place)


def run_on(processes: int, folder: Path, data: Path | str, steps: int, **options: Any) -> dict[int, list[Any]]:
    """Train on processes of gloo; what `by_update` returns of all of them."""
    run_ranks(processes, [__file__, str(folder), str(data), str(processes), str(steps), json.dumps(options)])
    files = [Path(f"{folder}-seen-{process}.json") for process in range(processes)]
    return by_update([one for file in files for one in json.loads(file.read_text())])


def main(folder: Path, data: str, processes: int, steps: int, options: str) -> None:
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    with keeping_checkpoints():
        seen = run(folder, data, processes, steps, **json.loads(options))
    state = PartialState()
    Path(f"{folder}-seen-{state.process_index}.json").write_text(json.dumps(seen))
    state.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
