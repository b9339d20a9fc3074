"""Writing trained models, whole or not at all, and their revisions by tokens or words, as BabyLM asks for."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.base.errors import ConfigError, InvalidChoiceError, UnwritableError, ZooWarning, first_line, raised_as
from zoo.base.files import write_json
from zoo.base.folders import RESULT_FILE, REVISIONS_SUFFIX, read_result, written_whole
from zoo.base.manifest import recorded, weights_of
from zoo.data.tasks import DataTask, Tokenizers

from .arguments import ZooTrainingArguments
from .record import RunRecord

if TYPE_CHECKING:
    from .trainer import ZooTrainer


def check_push(repo_id: str | None) -> None:
    """Check before training that a model can be pushed; a missing repository is created."""
    if repo_id is None:
        return
    from zoo.hub.addresses import parse_address
    from zoo.hub.client import Hub
    from zoo.hub.pushing import require_repository

    require_repository(Hub(), parse_address(repo_id), private=None)


def save_checkpoint(
    model: PreTrainedModel,
    tokenizers: Tokenizers,
    folder: str | Path,
    *,
    force: bool = False,
    state_dict: dict[str, Any] | None = None,
    run: RunRecord | None = None,
) -> None:
    """Save a model as safetensors, with its tokenizers, whole or not at all.

    Args:
        folder: Where to; `AutoModel` and `AutoTokenizer` load from it.
        force: Whether a saved model there may be replaced.
        state_dict: The weights, where the model itself has only a part of them.
        run: The run that made it, so that it is evaluated likewise.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced.
        UnwritableError: When the disk does not take it; what was in the folder is still there then.
    """
    with explained(folder), written_whole(Path(folder), force=force) as place:
        model.save_pretrained(place, state_dict=state_dict)
        tokenizers.save(place, model.config.max_position_embeddings)
        if run is not None:
            write_json(place / RESULT_FILE, run.to_dict())


def keep_report(folder: str | Path, report: Mapping[str, Any], key: str = "report") -> None:
    """Write the numbers of a run into its record, for the model's card, with the hashes of the weights they are of."""
    file = Path(folder) / RESULT_FILE
    with explained(file), recorded(Path(folder)):
        numbers = {**report, "weights": weights_of(Path(folder))}
        write_json(file, {**read_result(folder), key: numbers})


def is_unscored(folder: str | Path) -> bool:
    """Whether a folder holds a model from a run that was interrupted after its last step, before its scores."""
    result = read_result(folder)
    return "recipe" in result and "report" not in result


def explained(place: str | Path, kept: str | None = None) -> AbstractContextManager[None]:
    """Raise UnwritableError in one line for errors of writing."""

    def message(error: Exception) -> str:
        reason = getattr(error, "strerror", None) or first_line(error)
        return f"{place} cannot be written: {reason}{f'; {kept} is intact' if kept else ''}"

    return raised_as(UnwritableError, message, OSError, RuntimeError, SafetensorError)


UNITS = ("tokens", "words")  # Values of `checkpoint_in`

MULTIPLES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
SHORT = 0.02
"""Share of a mark that a run's end may lack: blocks at the end of an epoch that fill no update are left out."""

NUMBER = re.compile(r"(\d[\d_]*(?:\.\d+)?)([KMB]?)", re.IGNORECASE)


def read_marks(given: str | Sequence[str | int]) -> dict[str, int]:
    """Read numbers such as 1M and 500K, separated by commas: {as given: number}, in rising order; or ConfigError."""
    named = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    marks = {}
    for name in (name.strip() for name in named):
        read = NUMBER.fullmatch(name)
        number = round(float(read[1].replace("_", "")) * MULTIPLES[read[2].upper()]) if read else 0
        if number < 1:
            raise ConfigError(f"checkpoint_at={name!r} is no number of tokens or words; valid: 10M, 500K, 2000, ...")
        marks[name] = number
    return dict(sorted(marks.items(), key=lambda mark: mark[1]))


def marks_of(
    args: ZooTrainingArguments, task: DataTask, examples: Any, encoded: Any, tokenizers: Tokenizers
) -> dict[str, float]:
    """Numbers of tokens at which a run saves the model, by name; words count by their tokens on average."""
    InvalidChoiceError.check(args.checkpoint_in, valid=UNITS, kind="checkpoint_in")
    if args.checkpoint_at is None:
        return {}
    marks = read_marks(args.checkpoint_at)
    if args.checkpoint_in == "tokens":
        return dict(marks)
    tokens_per_word = task.tokens_per_word(examples, encoded, tokenizers)
    if tokens_per_word is None:
        raise ConfigError(
            f"checkpoint_in=words was given, and words are not counted in the data of {task.name}: give numbers of "
            "tokens, or prepare the data again"
        )
    return {name: number * tokens_per_word for name, number in marks.items()}


def folder_of(output_dir: str | Path, mark: str) -> Path:
    """Where the model of a mark goes, by the name of BabyLM's revisions."""
    return Path(f"{Path(output_dir)}{REVISIONS_SUFFIX}", f"chck_{mark}")


class Revisions(TrainerCallback):
    """Saves the model at given numbers of tokens, in rising order."""

    def __init__(self, trainer: ZooTrainer, marks: dict[str, float], save: Callable[[str], None]) -> None:
        self.trainer, self.marks, self.save = trainer, dict(marks), save

    def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
        """Leave out what a run that goes on has passed."""
        seen = self.trainer.total_tokens()
        self.marks = {name: number for name, number in self.marks.items() if number > seen}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save at the first update that reaches a mark."""
        if self.marks and (seen := self.trainer.total_tokens()) >= next(iter(self.marks.values())):
            began = time.perf_counter()
            self.save_up_to(seen)
            self.trainer.totals.pause(began)

    def on_train_end(self, *_: Any, **kwargs: Any) -> None:
        """Save a mark that the run ends just before, and report what was not reached."""
        seen = self.trainer.total_tokens()
        self.save_up_to(seen / (1 - SHORT))
        if self.marks:
            missed = ", ".join(self.marks)
            warnings.warn(f"checkpoint_at={missed} was not reached: the run has {seen:,} tokens", ZooWarning, 2)

    def save_up_to(self, tokens: float) -> None:
        for name in [name for name, number in self.marks.items() if number <= tokens]:
            self.save(name)
            del self.marks[name]
