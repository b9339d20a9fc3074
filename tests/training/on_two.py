"""Trains on two processes, for test_devices.py: `torchrun --nproc_per_node 2 on_two.py FOLDER`."""

import sys
from pathlib import Path

import torch
from accelerate import DistributedType, PartialState
from accelerate.state import AcceleratorState
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.utils import logging

from zoo.data.tasks import TASKS, Splits
from zoo.data.tasks.reading import documents
from zoo.training import train
from zoo.training.trainer import ZooTrainer

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ARGUMENTS = {
    "settings": {**SIZES, "dropout": 0.0},
    "generation": {"num_beams": 1, "max_length": 6},
    "tokenizer": {"kind": "word", "min_frequency": 1},
    "max_steps": 6,
    "warmup_steps": 1,
    "logging_steps": 1,
    "progress": False,
    "per_device_eval_batch_size": 4,
    "save_strategy": "steps",
    "save_steps": 3,
    "save_total_limit": None,
}
UNTIED = {"settings": {**ARGUMENTS["settings"], "tie_word_embeddings": False}}
UNTIED |= {"tokenizer": {**ARGUMENTS["tokenizer"], "joint": False}}
"""What accelerate can shard; embeddings that several modules share it cannot."""

UNLOGGED = {"max_steps": 3, "logging_steps": 100}
"""A run that is over before its first log."""

TOGETHER = 8  # Examples an update, in all processes


def run(folder: Path, processes: int, **changed: object) -> dict[str, object]:
    """Train, and return the results."""
    pairs = TASKS.get("translation").load().train
    data = Splits(pairs.select(range(43)), pairs.select(range(43, 56)))  # neither fills its last batch
    return train_on(data, processes, "pre-norm", output_dir=folder, **changed)


def kinds(processes: int) -> dict[str, object]:
    """Train on causal and on masked rows; the loss weighs the means of both."""
    texts = TASKS.get("translation").load().train["en"]
    data = Splits(documents(texts[:60]), documents(texts[60:80]))
    settings = {**ARGUMENTS["settings"], "attention_dropout": 0.0}
    given = {"settings": settings, "generation": None}
    return train_on(data, processes, "gpt-bert-style", "masked-next-token:block_size=16", **given)


def best(processes: int) -> dict[str, object]:
    """Keep the best checkpoint of a run that gets worse, and that has no folder."""
    pairs = TASKS.get("translation").load().train
    given = {"load_best_model_at_end": True, "max_steps": 2, "save_steps": 1, "learning_rate": 1.0}
    return train_on(Splits(pairs.select(range(43)), pairs.select(range(43, 56))), processes, "pre-norm", **given)


def train_on(data: Splits, processes: int, *what: str, **changed: object) -> dict[str, object]:
    arguments = {**ARGUMENTS, "per_device_train_batch_size": TOGETHER // processes, **changed}
    result = train(*what, data=data, **arguments)
    report = result.report
    return {
        "losses": [entry["loss"] for entry in report.history],
        "heldout": [report.heldout_loss, report.train_tokens, report.train_loss],
        "outputs": result.outputs,
        "best": report.best_step,
    }


def sharded(folder: Path) -> dict[str, object]:
    """Train with fully sharded weights, and see that they are.

    accelerate shards on GPUs only, although PyTorch can on CPUs too; so these are presented to it as GPUs.
    """
    seen = []

    def create_accelerator(trainer: ZooTrainer) -> None:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        create(trainer)

    create = ZooTrainer.create_accelerator_and_postprocess
    ZooTrainer.create_accelerator_and_postprocess = create_accelerator

    def training_step(trainer: ZooTrainer, *args: object) -> Tensor:
        seen.append(all(isinstance(parameter, DTensor) for parameter in trainer.model.parameters()))
        return step(trainer, *args)

    step, ZooTrainer.training_step = ZooTrainer.training_step, training_step
    found = run(folder, 2, fsdp=True, **UNTIED)
    ZooTrainer.training_step = step
    assert all(seen) and len(seen) == ARGUMENTS["max_steps"]
    return found


def main(folder: Path) -> None:
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    found = {"two": run(folder / "two", 2), "resumed on two": run(folder / "one", 2, resume=True, force=True)}
    found["unlogged"] = run(folder / "unlogged on two", 2, **UNLOGGED)
    found |= {"kinds": kinds(2), "best": best(2)}
    AcceleratorState._reset_state(reset_partial_state=False)
    found["sharded"] = sharded(folder / "sharded")
    if PartialState().is_main_process:
        torch.save(found, folder / "found.pt")
    PartialState().destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
