"""Records what every update of a run reads: `torchrun recorded.py FOLDER DATA PROCESSES STEPS TASK`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor
from transformers.utils import logging

from zoo.training import train
from zoo.training.trainer import ZooTrainer

TOGETHER = 8
SETTINGS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "dropout": 0.0,
}


def run(folder: Path, data: Path | str, processes: int, steps: int, *, accumulation: int = 1, **more: Any) -> list[Any]:
    """Train for some updates.

    Returns:
        The number of the update and the ids of every block that this process has read.
    """
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
            per_device_train_batch_size=TOGETHER // processes // accumulation,
            gradient_accumulation_steps=accumulation,
            max_steps=steps,
            warmup_steps=0,
            lr_scheduler_type="constant",
            scored=False,
            progress=False,
            save_strategy="steps",
            save_steps=2,
            **more,
        )
    finally:
        ZooTrainer.training_step = step  # type: ignore[method-assign]
    return seen


def main(folder: Path, data: str, processes: int, steps: int, task: str) -> None:
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    seen = run(folder / f"on-{processes}", data, processes, steps, task=task)
    state = PartialState()
    (folder / f"seen-{processes}-{state.process_index}.json").write_text(json.dumps(seen))
    state.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
