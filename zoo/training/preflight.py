"""Checks before the first step, so that no run fails later for a reason that was known before."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel
from transformers.training_args import OptimizerNames

from zoo.analysis.scaling.simulating import Precision, batch_memory
from zoo.analysis.scaling.strategies import optimizer_states
from zoo.base.errors import ConfigError, InputError, SequenceTooLongError, TokenIdError, ZooError
from zoo.building.loading import class_of_task
from zoo.converters.engine import EngineModel
from zoo.converters.weights import task_of
from zoo.data.tasks import DataTask, Splits
from zoo.data.tasks.mapped import ROWS_AT_ONCE
from zoo.data.tasks.mixing import MixedBlocks
from zoo.data.tasks.streaming import is_streamed
from zoo.data.tasks.tables import place_of
from zoo.fast.chunked_loss import IGNORED
from zoo.models import ZooPreTrainedModel
from zoo.models.embedding import Position
from zoo.models.stack import stacks_of

from .arguments import MUON, ZooTrainingArguments
from .guard import HINT, smaller_steps

Collator = Callable[[Any], Mapping[str, Any]]


BYTES = 4  # Of a number, as weights, gradients and the optimiser's states are kept

GIB = 2**30

TOLERANCE = 1.1  # By how much the memory of a step is foreseen too large at the most


class PreflightError(ZooError, ValueError):
    """A run that would have failed later."""


@dataclass(frozen=True)
class Side:
    """Input ids of a model, or target ids that it learns to write."""

    column: str
    name: str
    vocabulary: int
    position: Position | None  # Their position part


def sides_of(model: PreTrainedModel) -> list[Side]:
    """Find what a model reads and learns to write."""
    config = model.config
    positions = {kind: stack.position for kind, stack in stacks_of(model).items()}
    if not config.is_encoder_decoder:
        return [Side("input_ids", "", config.vocab_size, next(iter(positions.values()), None))]
    decoder_vocabulary = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    return [
        Side("input_ids", "source ", config.vocab_size, positions.get("encoder")),
        Side("labels", "target ", decoder_vocabulary, positions.get("decoder")),
    ]


def check_examples(model: PreTrainedModel, dataset: Any, split: str) -> None:
    for side in sides_of(model):
        lengths, largest = measure(dataset, side.column)
        if not len(lengths):
            continue
        if largest.max() >= side.vocabulary:
            raise TokenIdError(
                f"{described(dataset, largest, split)} has the {side.name}token id {largest.max()}, but the model's "
                f"vocabulary has {side.vocabulary} ids; use the tokenizer that belongs to the model"
            )
        try:
            if side.position is not None:
                side.position.check(int(lengths.max()))
        except SequenceTooLongError as error:
            raise SequenceTooLongError(
                f"{described(dataset, lengths, split)} has {lengths.max()} {side.name}tokens, but the model has "
                f"max_position_embeddings={side.position and side.position.max_length}; leave out what is so long, or "
                f"build the model with max_position_embeddings={lengths.max()}"
            ) from error


def described(dataset: Any, values: npt.NDArray[np.int64], split: str) -> str:
    """Name the example with the largest value, one per example, by file and line or by its number."""
    worst = int(values.argmax())
    return place_of(dataset, worst) or f"{split} example {worst + 1}"


def measure(dataset: Any, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number of ids of each example, and the largest of them. *Shape:* (num_examples,)."""
    rows: Iterable[Any]
    if isinstance(dataset, Dataset):
        parts = dataset.with_format("numpy", columns=[column]).iter(ROWS_AT_ONCE)
        rows = (row for part in parts for row in part[column])
    else:  # blocks of one long text, all alike
        rows = [dataset[number][column] for number in range(min(len(dataset), 1))]
    sizes = np.array([(np.size(row), np.max(row, initial=-1)) for row in rows], dtype=np.int64).reshape(-1, 2)
    return sizes[:, 0], sizes[:, 1]


def rehearse(model: PreTrainedModel, dataset: Any, collator: Collator) -> list[str]:
    """Compute the loss of a few examples and its gradient, and leave everything as it was."""
    chosen = [int(measure(dataset, "input_ids")[0].argmax()), with_label(dataset)]
    if model.config.is_encoder_decoder:
        source, target = (measure(dataset, column)[0] for column in ("input_ids", "labels"))
        chosen = [int(lengths.argmax()) for lengths in (source, target, abs(source - target))]
    examples = known_columns(model, dataset, chosen)
    training = model.training
    devices = [model.device] if model.device.type == "cuda" else []
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]  # such as the load of experts, which is counted
    with torch.random.fork_rng(devices=devices):
        model.train()
        try:
            for batch in (examples, examples[-1:]):
                inputs = {name: value.to(model.device) for name, value in collator(batch).items()}
                loss = model(**inputs).loss
                if not loss.isfinite():
                    raise PreflightError(f"the loss is {loss.item()} before the first step; {HINT}")
            if not loss.requires_grad:
                raise PreflightError("no parameter of the model would be trained: each has requires_grad=False")
            loss.backward()
            trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
            return [name for name, parameter in trained if parameter.grad is None]
        finally:
            model.train(training)
            model.zero_grad(set_to_none=True)
            for buffer, before in buffers:
                buffer.copy_(before)


def known_columns(model: nn.Module, dataset: Any, places: Iterable[int]) -> list[dict[str, Any]]:
    """Examples at some places, without columns that the model does not take."""
    known = inspect.signature(model.forward).parameters
    return [{name: value for name, value in dataset[place].items() if name in known} for place in places]


def with_label(dataset: Any) -> int:
    """The first of some examples with a label: a short block may have no mask."""
    some = range(min(len(dataset), 100))
    return next((number for number in some if np.not_equal(dataset[number]["labels"], IGNORED).any()), 0)


def check_sharding(model: PreTrainedModel, args: ZooTrainingArguments) -> None:
    """Refuse to shard what accelerate cannot."""
    sharded = args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    if sharded and model.config.is_encoder_decoder and model.all_tied_weights_keys:
        raise ConfigError(
            "FSDP cannot shard an encoder-decoder with shared embeddings: build it with tie_word_embeddings=False "
            "and give its tokenizers a vocabulary each (joint: false)"
        )


def check_head(model: PreTrainedModel, task: DataTask) -> None:
    """Refuse a model for another task: it would read labels at other places, or see them in its input."""
    own = [task_of(model)]
    if not isinstance(model, (ZooPreTrainedModel, EngineModel)):
        from zoo.converters.native.declared import AUTO_CLASSES

        own = [kind for kind, classes in AUTO_CLASSES.items() if type(model).__name__ in classes.values()]
    if own and task.model_task not in own:
        raise ConfigError(
            f"task {task.name!r} needs a model for {task.model_task} ({class_of_task(task.model_task).__name__}), and "
            f"this is a {type(model).__name__} for {' and '.join(own)}"
        )


@torch.no_grad()
def check_sight(model: PreTrainedModel, task: DataTask, dataset: Any, *, use_cache: bool = False) -> None:
    """Refuse language models of transformers' own that see later tokens, or other documents of a packed row."""
    is_flash = str(model.config._attn_implementation).startswith("flash")  # which runs on a device alone
    if isinstance(model, (ZooPreTrainedModel, EngineModel)) or is_flash or task.model_task != "causal-lm":
        return
    ids, known = torch.arange(4, device=model.device).repeat(2)[None], inspect.signature(model.forward).parameters
    places = {"position_ids": ids} if "position_ids" in dataset[0] else {}
    given = {key: value for key, value in {**places, "use_cache": use_cache}.items() if key in known}
    first, second, training = ids[:, :4], ids[:, 4:], model.training
    rows = (ids, torch.cat([first, torch.full_like(second, 3)], 1), torch.cat([torch.full_like(first, 3), second], 1))
    own, later, earlier = (model.eval()(input_ids=one, **given).logits for one in rows)
    model.train(training)
    rounding, name = 1e-4 if own.element_size() < 4 else 1e-6, type(model).__name__
    if not torch.allclose(own[:, :4], later[:, :4], 1e-3, rounding):
        raise ConfigError(f"{name} sees the tokens that it is to predict: give a decoder, is_decoder=True")
    if places and not torch.allclose(own[:, 4:], earlier[:, 4:], 1e-3, rounding):
        raise ConfigError(f"{name} does not separate documents in a row: give packing=blocks")


def check_data(
    model: PreTrainedModel, name: str, task: DataTask, encoded: Splits, collator: Collator, args: ZooTrainingArguments
) -> list[str]:
    """Refuse examples that a model cannot be trained or evaluated on."""
    check_head(model, task)
    if (problem := task.misfit(model.config)) is not None:
        raise ConfigError(problem)
    for split, dataset in (("training", encoded.train), ("held-out", encoded.heldout)):
        if not len(dataset):
            raise PreflightError(f"there are no {split} examples")
        check_examples(model, dataset, split)
    size = args.train_batch_size * args.world_size
    if args.dataloader_drop_last and len(encoded.train) < size:
        raise ConfigError(
            f"dataloader_drop_last=True leaves no batch of {size} of {len(encoded.train)} training examples: leave it "
            "out, or give a smaller per_device_train_batch_size"
        )
    if is_streamed(encoded.train) and args.max_steps <= 0:
        raise ConfigError("streamed texts have no end: give max_steps, the number of updates")
    if isinstance(encoded.train, MixedBlocks) and args.train_sampling_strategy == "sequential":
        raise ConfigError(
            "train_sampling_strategy=sequential was given with a mixture, which is drawn by shares: leave it out"
        )
    check_sharding(model, args)
    if args.use_liger_kernel and isinstance(model, ZooPreTrainedModel):
        raise ConfigError(
            "use_liger_kernel=True puts kernels into transformers' own classes, and none into the zoo's: leave it out; "
            "losses are computed a chunk of tokens at a time without it"
        )
    if args.device.type != "cpu":
        longest = max(int(measure(encoded.train, side.column)[0].max()) for side in sides_of(model))
        check_step(model, args, longest, memory_of(args.device))
    check_sight(model, task, encoded.train, use_cache=args.use_cache)
    if str(model.config._attn_implementation).startswith("flash"):
        return []  # which runs on the device and in the precision of the run alone
    try:
        return rehearse(model, encoded.train, collator)
    except InputError as error:
        raise PreflightError(f"{name} cannot be trained on {task.name}: {error}") from error


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
    size, checkpointing = args.per_device_train_batch_size, args.gradient_checkpointing
    return kept + batch_memory(
        model, size, seq_len, precision=precision, checkpointing=checkpointing, whole_logits=is_sharded
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
