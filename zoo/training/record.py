"""RunRecord: settings and data of a run. TrainingReport: its numbers."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from zoo.base.folders import read_result
from zoo.data.tasks import DataSource, Score, Splits, Tokenizers
from zoo.data.tasks.prepared import ShardedTexts
from zoo.data.tasks.tables import NUMBERS

from .recipe import Recipe

if TYPE_CHECKING:
    from zoo.hub import PushReport


@dataclass(frozen=True)
class TrainingReport:
    """The numbers of a training run.

    Attributes:
        variant: The variant's name with its settings, or the model's class.
        task: The task's name.
        seed: The seed of weights, dropout and data.
        device: The device that it ran on.
        num_devices: On how many of them.
        num_parameters: Every shared parameter counted once.
        train_examples: Number of examples trained on.
        heldout_examples: Number of examples evaluated on.
        steps: Number of updates.
        best_step: After which of them the model was best and is kept, None where the last one is kept.
        epochs: How often the data was seen, None for streamed texts.
        train_tokens: Tokens trained on, source and target ones, padding excluded; also those before an interruption.
        train_seconds: Wall-clock time of training alone, likewise; evaluations and writing checkpoints are left out.
        train_loss: The last logged training loss; smoothed if the labels were.
        heldout_loss: Cross-entropy per target token, in nats, without label smoothing.
        scores: Scores of the generated outputs.
        evaluation_seconds: Wall-clock time of loss and generation on the held-out examples.
        peak_memory: Bytes at most in use while training: of the GPU, or of the whole process on a CPU; else None.
        history: Logged training losses, a dictionary a step, with the `tokens` and `seconds` so far.
        evaluations: Logged held-out losses during training, likewise.
        average: Averaged weights: `kind`, number of `updates`, `heldout_loss` and `scores`; None for none.
        examples_per_update: Batch size of all devices together, over accumulated steps; 0 where it was not noted.
        mixture: Of a mixture, the share of the blocks and the epochs of each source.
    """

    variant: str
    task: str
    seed: int
    device: str
    num_devices: int
    num_parameters: int
    train_examples: int
    heldout_examples: int
    steps: int
    best_step: int | None
    epochs: float | None
    train_tokens: int
    train_seconds: float
    train_loss: float
    heldout_loss: float
    scores: dict[str, Score]
    evaluation_seconds: float
    peak_memory: int | None
    history: list[dict[str, float]]
    evaluations: list[dict[str, float]] = field(default_factory=list)
    examples_per_update: int = 0
    average: dict[str, Any] | None = None
    mixture: dict[str, dict[str, float]] | None = None

    @property
    def train_tokens_per_second(self) -> float:
        """Source and target tokens a second while training."""
        return self.train_tokens / self.train_seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields, and the speed, as plain data."""
        return {**asdict(self), "train_tokens_per_second": self.train_tokens_per_second}


@dataclass(frozen=True)
class TrainingResult:
    """A trained model.

    Attributes:
        model: The model, in evaluation mode.
        tokenizers: Its tokenizers.
        outputs: Its outputs for the held-out examples, in their order.
        report: The numbers.
        run: Record of the run.
        pushed: Report of the push to the Hub, if any.
    """

    model: PreTrainedModel
    tokenizers: Tokenizers
    outputs: list[str]
    report: TrainingReport
    run: RunRecord
    pushed: PushReport | None = None


def peak_memory(device: torch.device) -> int | None:
    """Measure how much memory has been in use at most; None for devices other than CPUs and CUDA."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu":
        return None
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


INCIDENTAL_ARGUMENTS = re.compile(
    r"(logging|save)_.*|dataloader_(?!drop_last).*|report_to|run_name|project|disable_tqdm|use_cpu"
)
"""Training arguments that may differ between a run and its continuation."""

Record = TypeVar("Record")


@dataclass(frozen=True)
class ExamplesRecord:
    """Some examples."""

    examples: int
    sha256: str  # The hash of their columns, in hexadecimal digits
    columns: Sequence[str] = ()  # The columns that were read, by their names, or their numbers where these were given

    @classmethod
    def of(cls, examples: Dataset) -> ExamplesRecord:
        columns = [name for name in examples.column_names if name not in NUMBERS.values()]
        return cls(len(examples), digest_of_examples(examples), columns)


@dataclass(frozen=True)
class DataRecord:
    """The examples of a run."""

    source: DataSource | None  # Where they come from; None where they were given as objects
    train: ExamplesRecord
    heldout: ExamplesRecord
    # Those of the training data that the best checkpoint was chosen by; None where the last one was kept
    selection: ExamplesRecord | None = None
    duplicates: int = 0  # How many were not trained on because they are held out as well


@dataclass(frozen=True)
class RunRecord:
    """Record of a run, by which it is described, repeated, evaluated again, and identified."""

    variant: str  # The variant's name with its settings, or the model's class
    seed: int  # The seed of weights, dropout and data
    recipe: Recipe  # How it was trained: as it ran, not as the recipe's file has it
    tokenizers: str
    data: DataRecord

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self), default=str))

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> RunRecord:
        """Read the record in a result, next to which the result has reports."""
        return from_plain(cls, {field.name: written[field.name] for field in fields(cls)})

    def identity(self, *, examples_a_batch: int) -> dict[str, Any]:
        """Facts that decide the final weights of the run."""
        written = self.to_dict()
        recipe, data = written["recipe"], written["data"]
        kept = {name: value for name, value in recipe["arguments"].items() if not INCIDENTAL_ARGUMENTS.fullmatch(name)}
        kept["per_device_train_batch_size"] = examples_a_batch
        return {
            "variant": self.variant,
            "seed": self.seed,
            "task": recipe["task"],
            "task_options": recipe["task_options"],
            "data": [data["train"], data["heldout"], data["selection"]],
            "tokenizer": {**recipe["tokenizer"], "sha256": self.tokenizers},
            "model": recipe["model"],
            "init": recipe["init"],
            "arguments": kept,
        }


def from_plain(kind: type[Record], written: Mapping[str, Any]) -> Record:
    """Make a record, and those in it, of what JSON holds of it."""
    hints, made = get_type_hints(kind), dict(written)
    for name, value in made.items():
        kinds = get_args(hints[name]) if get_origin(hints[name]) in (Union, UnionType) else (hints[name],)
        plain = tuple(get_origin(each) or each for each in kinds)
        inner: Any = next((each for each in plain if is_dataclass(each)), None)
        if isinstance(value, dict) and inner is not None:
            made[name] = from_plain(inner, value)
        elif not isinstance(value, plain) and not (isinstance(value, list) and tuple in plain):
            raise TypeError(f"{kind.__name__}.{name} is {value!r}")
    return kind(**made)


def record_run(
    model: str | PreTrainedModel,
    recipe: Recipe,
    tokenizers: Tokenizers,
    splits: Splits,
    *,
    selection: Dataset | None = None,
    seed: int,
) -> RunRecord:
    named = model if isinstance(model, str) else None
    given = {} if named is None else recipe.model_settings(named)
    ran = replace(
        recipe,
        tokenizer=dict(tokenizers.made_by),
        # Without the sizes of a recipe with a width, which follow from it
        model={name: value for name, value in given.items() if (name, value) != ("sizes", "fixed")},
        explicit=() if named is None else tuple(recipe.explicit),
    )
    train, heldout = ExamplesRecord.of(splits.train), ExamplesRecord.of(splits.heldout)
    selected = None if selection is None else ExamplesRecord.of(selection)
    data = DataRecord(splits.source, train, heldout, selected, splits.duplicates)
    return RunRecord(named or type(model).__name__, seed, ran, digest_of_tokenizers(tokenizers), data)


def digest_of_examples(examples: Dataset) -> str:
    if isinstance(examples, ShardedTexts):
        return examples.sha256
    digest = hashlib.sha256()
    examples = examples.remove_columns([name for name in NUMBERS.values() if name in examples.column_names])
    digest.update(f"{examples.column_names} {len(examples)}\n".encode())
    for rows in examples.iter(1000):
        digest.update(json.dumps(rows, ensure_ascii=False, default=str).encode())
    return digest.hexdigest()


def digest_of_tokenizers(tokenizers: Tokenizers) -> str:
    digest = hashlib.sha256()
    for tokenizer in (tokenizers.source, tokenizers.target)[: 1 if tokenizers.joint else 2]:
        backend = copy.deepcopy(tokenizer.backend_tokenizer)
        backend.no_truncation()  # as set by its last call
        backend.no_padding()
        digest.update(f"{backend.to_str()}\n{tokenizer.special_tokens_map}\n".encode())
    return digest.hexdigest()


def saved_run(folder: str | Path) -> RunRecord | None:
    try:
        return RunRecord.from_dict(read_result(folder))
    except (LookupError, TypeError, ValueError):
        return None


def first_difference(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> str | None:
    for name in dict.fromkeys((*there, *here)):
        before, now = there.get(name), here.get(name)
        if before == now:
            continue
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            return first_difference(before, now, f"{prefix}{name}.")
        if name == "data":
            return "its data are others"
        values = ["not given" if value is None else value for value in (before, now)]
        return f"its {prefix}{name} is {values[0]}, not {values[1]}"
    return None
