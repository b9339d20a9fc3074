"""Checks that a run fits in memory and on the disk."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psutil
import torch
from transformers import PreTrainedModel
from transformers.training_args import OptimizerNames

from zoo.analysis.scaling.simulating import Precision, batch_memory
from zoo.analysis.scaling.strategies import optimizer_states
from zoo.base.errors import ZooError
from zoo.models import ZooPreTrainedModel

from .arguments import MUON, ZooTrainingArguments
from .guard import smaller_steps

BYTES = 4  # Of a number, as weights, gradients and the optimiser's states are kept

GIB = 2**30

TOLERANCE = 1.1  # By how much the memory of a step is foreseen too large at the most


class PreflightError(ZooError, ValueError):
    """A run that would have failed later."""


def check_memory(
    num_parameters: int, args: ZooTrainingArguments, available: int | None, model: PreTrainedModel | None = None
) -> int:
    shards = args.world_size if args.fsdp else 1
    trained = num_parameters if model is None else model.num_parameters(only_trainable=True)
    needed = round(BYTES * (num_parameters + trained * (1 + states_of(args, model))) / shards)
    if available is not None and needed > available:
        raise PreflightError(
            f"training needs at least {needed / GIB:.1f} GiB for weights, gradients and the optimiser's states, and "
            f"the {args.device.type} has {available / GIB:.1f} GiB; make the model smaller, or use optim=adafactor"
        )
    return needed


def step_memory(model: ZooPreTrainedModel, args: ZooTrainingArguments, seq_len: int) -> int:
    """Foresee the most memory of a training step, by running one on tensors without values."""
    is_sharded = bool(args.fsdp)
    precision = Precision.BFLOAT16 if is_sharded else Precision.MIXED if args.bf16 or args.fp16 else Precision.FLOAT32
    kept = check_memory(model.num_parameters(), args, None, model) + sum(buffer.nbytes for buffer in model.buffers())
    return kept + batch_memory(
        model,
        args.per_device_train_batch_size,
        seq_len,
        precision=precision,
        checkpointing=args.gradient_checkpointing,
        whole_logits=is_sharded,
    )


def check_step(model: PreTrainedModel, args: ZooTrainingArguments, seq_len: int, available: int | None) -> None:
    """Refuse a batch that an accelerator has no room for."""
    if available is None or not isinstance(model, ZooPreTrainedModel):
        return
    if model.config._attn_implementation != "eager" and "sdpa" not in model.supported_backends():
        return  # memory of its kernel is unknown
    needed = step_memory(model, args, seq_len)
    if needed > TOLERANCE * available:
        raise PreflightError(
            f"a training step of {args.per_device_train_batch_size} sequences of {seq_len} tokens needs about "
            f"{needed / GIB:.1f} GiB, and the {args.device.type} has {available / GIB:.1f} GiB: take "
            f"{smaller_steps(args)}"
        )


def states_of(args: ZooTrainingArguments, model: PreTrainedModel | None = None) -> float:
    rank = re.findall(r"\brank=(\d+)", args.optim_args or "")
    return optimizer_states(MUON if args.uses_muon else OptimizerNames(args.optim).value, model, *map(int, rank))


def memory_of(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)


def check_disk(num_parameters: int, args: ZooTrainingArguments, output_dir: str | Path | None, *, saves: bool) -> int:
    if output_dir is None:
        return 0
    checkpoints = (args.save_total_limit or 1) + 1 if saves else 0  # one more is written before one is removed
    needed = round(num_parameters * BYTES * (1 + checkpoints * (1 + states_of(args))))
    place = Path(output_dir).absolute()
    there = next(folder for folder in (place, *place.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise PreflightError(
            f"{needed / GIB:.2f} GiB will be written to {place.parent}, and {free / GIB:.2f} GiB are "
            "free there; choose another disk, or keep fewer checkpoints (save_total_limit)"
        )
    return needed
