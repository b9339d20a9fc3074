"""What is checked before the first step, so that no run fails at a later one for what was known before."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.training_args import OptimizerNames

from zoo.errors import InputError, SequenceTooLongError, TokenIdError, ZooError
from zoo.models.positions import Position
from zoo.tasks import DataTask, Splits

from .arguments import ZooTrainingArguments
from .guard import HINT

BYTES = 4
"""Of a number, as weights, gradients and the optimiser's states are kept."""

STATES = {"adafactor": 0, "sgd": 0, "lomo": 0, "lion_32bit": 1, "rmsprop": 1, "adagrad": 1}
"""Numbers that an optimiser keeps for each weight, where it is not two."""

GIB = 2**30

Collator = Callable[[Any], Mapping[str, Any]]


class PreflightError(ZooError, ValueError):
    """A run that would have failed later."""


@dataclass(frozen=True)
class Side:
    """What a model reads, or what it learns to write.

    Attributes:
        column: Where the ids are.
        name: What to call them.
        vocabulary: Number of ids.
        position: What places them.
    """

    column: str
    name: str
    vocabulary: int
    position: Position | None


def sides_of(model: PreTrainedModel) -> list[Side]:
    """Find what a model reads and learns to write.

    Args:
        model: The model.

    Returns:
        One side, or two where it has an encoder and a decoder.
    """
    config = model.config
    positions = {name: part for name, part in model.named_modules() if isinstance(part, Position)}

    def placed_by(stack: str) -> Position | None:
        return next((part for name, part in positions.items() if stack in name.split(".")), None)

    if not config.is_encoder_decoder:
        return [Side("input_ids", "", config.vocab_size, next(iter(positions.values()), None))]
    decoder_vocabulary = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    return [
        Side("input_ids", "source ", config.vocab_size, placed_by("encoder")),
        Side("labels", "target ", decoder_vocabulary, placed_by("decoder")),
    ]


def check_examples(model: PreTrainedModel, dataset: Any, split: str) -> None:
    """Refuse examples that a model cannot read or learn to write.

    Args:
        model: The model.
        dataset: Encoded examples.
        split: What they are for, as messages name it.

    Raises:
        SequenceTooLongError: When one is longer than the table of positions.
        TokenIdError: When one has an id that is in no vocabulary.
    """
    for side in sides_of(model):
        lengths, largest = measure(dataset, side.column)
        if not len(lengths):
            continue
        if largest.max() >= side.vocabulary:
            raise TokenIdError(
                f"{split} example {largest.argmax() + 1} has the {side.name}token id {largest.max()}, but the model's "
                f"vocabulary has {side.vocabulary} ids; use the tokenizer that belongs to the model"
            )
        try:
            if side.position is not None:
                side.position.check_length(int(lengths.max()))
        except SequenceTooLongError as error:
            raise SequenceTooLongError(
                f"{split} example {lengths.argmax() + 1} has {lengths.max()} {side.name}tokens, but the model has "
                f"max_position_embeddings={side.position and side.position.max_length}; leave out what is so long, or "
                f"build the model with max_position_embeddings={lengths.max()}"
            ) from error


def measure(dataset: Any, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Measure encoded examples.

    Args:
        dataset: The examples.
        column: Where their ids are.

    Returns:
        The number of ids of each example, and the largest of them. *Shape:* (num_examples,)
    """
    if isinstance(dataset, Dataset):
        rows = dataset.with_format("numpy", columns=[column])[:][column]
    else:  # blocks of one long text, all alike
        rows = [dataset[number][column] for number in range(min(len(dataset), 1))]
    lengths = np.array([np.size(row) for row in rows], dtype=np.int64)
    return lengths, np.array([np.max(row) if np.size(row) else -1 for row in rows], dtype=np.int64)


def rehearse(model: PreTrainedModel, dataset: Any, collator: Collator) -> list[str]:
    """Compute the loss of a few examples and its gradient, and leave everything as it was.

    The examples are those with the longest source, with the longest target, and with the most different lengths; the
    last one also by itself, because some models need both to be of one length.

    Args:
        model: The model.
        dataset: Encoded examples.
        collator: Puts them into batches.

    Returns:
        Names of the parameters that have no part in the loss.

    Raises:
        ZooError: When the model refuses them.
        PreflightError: When the loss is no number.
    """
    chosen = [0]
    if model.config.is_encoder_decoder:
        source, target = (measure(dataset, column)[0] for column in ("input_ids", "labels"))
        chosen = [int(lengths.argmax()) for lengths in (source, target, abs(source - target))]
    known = inspect.signature(model.forward).parameters
    examples = [{name: value for name, value in dataset[number].items() if name in known} for number in chosen]
    training = model.training
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        model.train()
        try:
            for batch in (examples, examples[-1:]):
                inputs = {name: value.to(model.device) for name, value in collator(batch).items()}
                loss = model(**inputs).loss
                if not loss.isfinite():
                    raise PreflightError(f"the loss is {loss.item()} before the first step; {HINT}")
            loss.backward()
            trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
            return [name for name, parameter in trained if parameter.grad is None]
        finally:
            model.train(training)
            model.zero_grad(set_to_none=True)


def check_memory(num_parameters: int, args: ZooTrainingArguments, available: int | None) -> int:
    """Refuse a model that cannot be trained in the memory that there is.

    Args:
        num_parameters: The model's size.
        args: How it is trained.
        available: Bytes of the device, None where nobody knows.

    Returns:
        Bytes that weights, gradients and the optimiser's states take, without activations.

    Raises:
        PreflightError: When that is more than the device has.
    """
    shards = args.world_size if args.fsdp else 1
    needed = num_parameters * BYTES * (2 + optimizer_states(args)) // shards
    if available is not None and needed > available:
        raise PreflightError(
            f"training needs at least {needed / GIB:.1f} GiB for weights, gradients and the optimiser's states, and "
            f"the {args.device.type} has {available / GIB:.1f} GiB; make the model smaller, or use optim=adafactor"
        )
    return needed


def optimizer_states(args: ZooTrainingArguments) -> int:
    """Say how many numbers an optimiser keeps for each weight.

    Args:
        args: Names the optimiser.

    Returns:
        Their number; of Muon's, most are one.
    """
    return 1 if args.uses_muon else STATES.get(OptimizerNames(args.optim).value, 2)


def memory_of(device: torch.device) -> int | None:
    """Ask how much memory a device has.

    Args:
        device: The device.

    Returns:
        Bytes, or None where the system does not say.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None


def check_disk(num_parameters: int, args: ZooTrainingArguments, output_dir: Path | None, *, saves: bool) -> int:
    """Refuse to write more than the disk has room for.

    Args:
        num_parameters: The model's size.
        args: What is saved how often.
        output_dir: Where the model goes, None where it is not kept.
        saves: Whether there are checkpoints, beside that folder.

    Returns:
        Bytes that will be written and kept at once.

    Raises:
        PreflightError: When there is not as much.
    """
    if output_dir is None:
        return 0
    checkpoints = (args.save_total_limit or 1) + 1 if saves else 0  # one more is written before one is removed
    needed = num_parameters * BYTES * (1 + checkpoints * (1 + optimizer_states(args)))
    there = next(folder for folder in (output_dir.absolute(), *output_dir.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise PreflightError(
            f"{needed / GIB:.2f} GiB will be written to {output_dir.absolute().parent}, and {free / GIB:.2f} GiB are "
            "free there; choose another disk, or keep fewer checkpoints (save_total_limit)"
        )
    return needed


def check_room(num_parameters: int, args: ZooTrainingArguments, output_dir: str | Path | None, *, saves: bool) -> None:
    """Refuse a model that the memory or the disk has no room for.

    Args:
        num_parameters: The model's size.
        args: How it is trained and saved.
        output_dir: Where the model goes, None where it is not kept.
        saves: Whether there are checkpoints, beside that folder.

    Raises:
        PreflightError: When one of them has not.
    """
    check_memory(num_parameters, args, memory_of(args.device))
    check_disk(num_parameters, args, Path(output_dir) if output_dir is not None else None, saves=saves)


def check_data(model: PreTrainedModel, name: str, task: DataTask, encoded: Splits, collator: Collator) -> list[str]:
    """Refuse examples that a model cannot be trained or evaluated on.

    Args:
        model: The model.
        name: The variant's name.
        task: The task.
        encoded: Examples as ids.
        collator: Puts them into batches.

    Returns:
        Names of the parameters that have no part in the loss.

    Raises:
        ZooError: With the example that is at fault, or with what the model lacks.
    """
    for split, dataset in (("training", encoded.train), ("held-out", encoded.heldout)):
        if not len(dataset):
            raise PreflightError(f"there are no {split} examples")
        check_examples(model, dataset, split)
    if str(model.config._attn_implementation).startswith("flash"):
        return []  # which runs on the device and in the precision of the run alone
    try:
        return rehearse(model, encoded.train, collator)
    except InputError as error:
        raise PreflightError(f"{name} cannot be trained on {task.name}: {error}") from error
