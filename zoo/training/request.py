"""The request of a training run: the arguments of `train`, read and checked before any data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel, TrainerCallback

from zoo.base.errors import ConfigError, InputError
from zoo.base.files import expanded
from zoo.base.folders import check_output, held_alone, scratch_folder
from zoo.building.keywords import TrainingOptions
from zoo.data.tasks import DataSource, Splits, Tokenizers
from zoo.data.tasks.tables import Column
from zoo.models.wrapped import unwrapped

from .arguments import ZooTrainingArguments, check_idle, training_arguments
from .checkpoints import clear_checkpoints
from .inputs import full_recipe
from .recipe import Recipe
from .saving import check_push, folder_of, is_unscored

SET_THE_STRATEGY = ("save_steps", "load_best_model_at_end", "early_stopping_patience")
"""Training arguments by which checkpoints are saved otherwise than once an epoch."""


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """The arguments of [`zoo.training.train`][]."""

    model: str | PreTrainedModel
    task: str | None
    data: str | Path | Splits | None
    heldout: str | Path | None
    columns: Sequence[Column] | None
    recipe: str | Path | Recipe | None
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None
    init: str | Path | None
    settings: Mapping[str, Any] | None
    generation: Mapping[str, Any] | None
    output_dir: str | Path | None
    force: bool
    resume: bool
    push: str | None
    with_code: bool
    seed: int | None
    scored: bool
    callbacks: Sequence[TrainerCallback]
    progress: bool
    tell: Callable[[str], None] | None
    arguments: TrainingOptions

    def __post_init__(self) -> None:
        if self.output_dir is not None:
            object.__setattr__(self, "output_dir", expanded(self.output_dir))
        object.__setattr__(self, "model", unwrapped(self.model))

    @cached_property
    def chosen(self) -> Recipe:
        name = self.model if isinstance(self.model, str) else None
        options: dict[str, Any] = {"arguments": self.arguments, "settings": self.settings, "init": self.init}
        options |= {"generation": self.generation, "tokenizer": self.tokenizer}
        found = full_recipe(self.task, self.recipe, name, **options)
        # A given seed wins over the recipe's.
        given = {name: value for name, value in found.arguments.items() if name != "seed" or self.seed is None}
        if self.resume and not any(map(given.get, SET_THE_STRATEGY)):
            given = {"save_strategy": "epoch", **given}
        return replace(found, arguments={**({"save_total_limit": 2} if self.resume else {}), **given})

    @cached_property
    def args(self) -> ZooTrainingArguments:
        return training_arguments(
            self.chosen.arguments, output_dir=self.checkpoints, seed=self.seed or 0, progress=self.progress
        )

    @cached_property
    def source(self) -> DataSource:
        data = None if isinstance(self.data, Splits) else self.data
        return DataSource.of(data, self.heldout, self.columns, self.args.order_seed)

    @property
    def checkpoints(self) -> str:
        return os.curdir if self.output_dir is None else f"{Path(self.output_dir).absolute()}-checkpoints"

    @property
    def saves(self) -> bool:
        return self.args.save_strategy != "no"

    @property
    def replaces(self) -> bool:
        """Whether files in the output folder may be replaced."""
        return self.force or (self.resume and self.output_dir is not None and is_unscored(self.output_dir))

    def check(self) -> None:
        """Refuse what can be refused without any data or arguments of the trainer."""
        if self.output_dir is not None:
            check_output(Path(self.output_dir), force=self.replaces)
        elif self.resume or self.push:
            given = "resume" if self.resume else "push"
            raise ConfigError(f"{given} is given without output_dir, where the model is kept")
        if self.with_code and not self.push:
            raise ConfigError("with_code was given without push, the repository that gets the code: give both")
        check_idle(self.arguments, self.chosen.arguments)
        self.chosen.check_generation(self.generation)
        task = self.chosen.data_task()
        if isinstance(self.model, str):
            task.check_variant(self.model)
            self.chosen.check_name(self.model)
        elif not isinstance(self.model, PreTrainedModel):
            adapted = (
                "; train an adapter as model.add_adapter(config) makes it" if hasattr(self.model, "peft_config") else ""
            )
            raise InputError(f"a {type(self.model).__name__} was given; give a variant's name, or a model{adapted}")


@contextmanager
def places_taken(request: TrainingRequest) -> Iterator[None]:
    """Hold the folder of a run alone, and give the trainer one for checkpoints: a scratch folder if none are kept."""
    output_dir, args = request.output_dir, request.args
    if request.resume and (args.save_only_model or not request.saves):
        given = "save_only_model=True" if request.saves else "save_strategy=no"
        raise ConfigError(f"{given} was given, which leaves no checkpoint to go on from (resume): give one of the two")
    kept = nullcontext(request.checkpoints) if request.saves and output_dir is not None else scratch_folder()
    keeps_nothing = output_dir is None or args.process_index != 0
    alone = nullcontext() if keeps_nothing else held_alone(Path(output_dir or ""), "training into")
    with alone, kept as place:
        # Scratch folders too: every process loads the best checkpoint, which the first one saves.
        args.output_dir, *_ = broadcast_object_list([str(place)])
        if args.process_index == 0:
            if output_dir is not None:
                check_output(Path(output_dir), force=request.replaces)
            check_push(request.push)
            if request.saves and not request.resume:
                clear_checkpoints(args.output_dir, force=request.force)
        yield


def check_further_outputs(request: TrainingRequest, marks: Mapping[str, float]) -> None:
    """Refuse folders of models at marks, and of averages, that hold something else."""
    output_dir, args = request.output_dir, request.args
    if marks and output_dir is None:
        raise ConfigError("checkpoint_at is given without output_dir, next to which the models are kept")
    if args.process_index == 0 and output_dir is not None:
        places = [folder_of(output_dir, mark) for mark in marks]
        places += [Path(f"{Path(output_dir)}-average")] if args.average is not None else []
        for further in places:
            check_output(further, force=request.force or request.resume)
