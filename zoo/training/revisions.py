"""Models as they are after given numbers of tokens or words, as BabyLM wants them."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.base.errors import ConfigError, InvalidChoiceError, ZooWarning
from zoo.base.folders import REVISIONS_SUFFIX
from zoo.data.tasks import DataTask, Tokenizers

from .arguments import ZooTrainingArguments

if TYPE_CHECKING:
    from .trainer import ZooTrainer

UNITS = ("tokens", "words")
"""Values of `checkpoint_in`."""

MULTIPLES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
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
    if args.checkpoint_in not in UNITS:
        raise InvalidChoiceError(str(args.checkpoint_in), UNITS, kind="checkpoint_in")
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
    """Saves the model at given numbers of tokens.

    Args:
        marks: Names and numbers of tokens, in rising order.
    """

    def __init__(self, trainer: ZooTrainer, marks: dict[str, float], save: Callable[[str], None]) -> None:
        self.trainer, self.marks, self.save = trainer, dict(marks), save

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave out what a run that goes on has passed."""
        seen = self.trainer.total_tokens()
        self.marks = {name: number for name, number in self.marks.items() if number > seen}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save at the first update that reaches a mark."""
        if not self.marks or self.trainer.total_tokens() < next(iter(self.marks.values())):
            return
        began = time.perf_counter()
        seen = self.trainer.total_tokens()
        for name in [name for name, number in self.marks.items() if number <= seen]:
            self.save(name)
            del self.marks[name]
        self.trainer.totals.pause(began)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report what was not reached."""
        if self.marks:
            missed = ", ".join(self.marks)
            seen = self.trainer.total_tokens()
            warnings.warn(f"checkpoint_at={missed} was not reached: the run has {seen:,} tokens", ZooWarning, 2)
