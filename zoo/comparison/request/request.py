"""The options of a comparison, read and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.base.files import expanded
from zoo.building.builder import config
from zoo.data.tasks import DataSource, Splits
from zoo.registry import parse_name
from zoo.training import Recipe
from zoo.training.arguments import check_idle, check_numbers, training_arguments
from zoo.training.inputs import full_recipe
from zoo.training.record import digest_of_examples
from zoo.training.suites import SuiteRun

from ..files import digest_of_files, plain
from .options import Options, options
from .seeds import (
    DATA_SEED,
    FEWEST_SEEDS,
    LENGTHS,
    MOST_LOOKS,
    MOST_SEEDS,
    Budget,
    Values,
    enough_seeds,
    model_fields,
    read_budget,
    read_seeds,
    read_sweep,
)


@dataclass(frozen=True)
class Request(Options):
    """The options of a comparison, read and checked."""

    @cached_property
    def chosen(self) -> Recipe:
        """How every variant is trained, before anything is matched, budgeted or swept."""
        given: dict[str, Any] = {"arguments": self.arguments, "settings": self.settings, "generation": self.generation}
        return full_recipe(self.task, self.recipe, next(iter(self.names), None), **given, tokenizer=self.tokenizer)

    @cached_property
    def source(self) -> DataSource:
        """Where the examples are, for processes that may run elsewhere; which are held out depends on no seed."""
        return DataSource.of(self.data, self.heldout, self.columns, DATA_SEED)

    @cached_property
    def folder(self) -> Path:
        default = Path("outputs") / f"compare-{self.chosen.task}"
        return expanded(default if self.output_dir is None else self.output_dir).absolute()

    @cached_property
    def spent(self) -> Budget | None:
        """How long every run is."""
        return read_budget(self.budget)

    @cached_property
    def tried(self) -> Values:
        """The values of the sweep."""
        return read_sweep(self.sweep)

    @cached_property
    def all_seeds(self) -> list[int]:
        """The seeds, at least three if seeds are added."""
        first = self.chosen.arguments.get("seed", 0) if self.seed is None else self.seed
        seeds = read_seeds(self.seeds, first)
        if self.seed not in (None, *seeds):
            raise ConfigError(f"seed={self.seed} and the seeds {self.seeds!r} were given; give one of both")
        return enough_seeds(seeds) if self.decide else seeds

    @cached_property
    def design(self) -> dict[str, Any] | None:
        """How verdicts are reached, as in `Comparison.design`."""
        limit = (self.most_seeds or MOST_SEEDS) if self.decide else None
        return None if self.margin is None and limit is None else {"margin": self.margin, "limit": limit}

    @cached_property
    def suite(self) -> SuiteRun | None:
        """The suite that decides."""
        return None if self.score is None else SuiteRun.parse(self.score)

    def check(self) -> None:
        """Refuse what can be refused without any data."""
        self.check_options()
        self.check_design()
        self.check_sweep()
        self.check_models()
        self.check_arguments()
        if self.spent is not None and self.spent.kind == "seconds":
            self.check_by_clock()

    def check_options(self) -> None:
        """Refuse unknown choices, and options that do nothing or contradict each other."""
        if not self.names:
            raise ConfigError("no variant was given; give the names of those to compare")
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            raise ConfigError(f"{twice!r} was given twice; give each variant once, or variants with different settings")
        for name, option in options().items():
            if option.choices and (value := getattr(self, name)) is not None:
                InvalidChoiceError.check(value, valid=option.choices, kind=name)
        for name in ("match_by", "match_to"):
            if (given := getattr(self, name)) is not None and self.match == "none":
                raise ConfigError(f"{name}={given} was given, but nothing is matched; give match=params or =flops")
        for length in LENGTHS:
            if self.spent is not None and length in self.arguments:
                raise ConfigError(
                    f"both the budget {self.spent} and {length} were given, which may contradict each other"
                )

    def check_sweep(self) -> None:
        """Refuse to sweep what all variants share or what has a value."""
        for swept in self.tried:
            if swept in ("seed", *LENGTHS):
                raise ConfigError(f"{swept} is to be swept, but is the same for all variants; give seeds, or a budget")
            if swept in self.arguments:
                raise ConfigError(f"{swept} was given, and is to be swept as well; give one of both")
        for name, field in product(self.names, model_fields(self.tried)):
            if field in parse_name(name).overrides:
                raise ConfigError(f"{name!r} has a value of {field}, which is to be swept as well; give one of both")

    def check_models(self) -> None:
        """Refuse variants that do not fit the task, and settings that they do not take."""
        task = self.chosen.data_task()
        self.chosen.check_generation(self.generation)
        if self.suite is not None:
            self.suite.check(task.model_task)
        for name in (*self.names, *filter(None, [self.match_to])):
            task.check_variant(name)
            self.chosen.check_name(name)
            settings = self.chosen.model_settings(name)
            config(name, task.model_task, **settings)
            for field, values in model_fields(self.tried).items():
                for value in values:
                    config(name, task.model_task, **{**settings, field: value})

    def check_arguments(self) -> None:
        """Refuse seeds and training arguments, those of the sweep included, that training does not take."""
        swept = {name: values for name, values in self.tried.items() if name not in model_fields(self.tried)}
        for seed in self.all_seeds:
            check_numbers({"seed": seed})
        for together in zip_longest(*swept.values()) if swept else [()]:
            one = {name: value for name, value in zip(swept, together, strict=True) if value is not None}
            training_arguments({**self.chosen.arguments, **one}, output_dir=self.folder, seed=0)
            check_idle({**self.arguments, **one}, {**self.chosen.arguments, **swept})  # each in some runs

    def check_by_clock(self) -> None:
        """Refuse counts of updates in runs that a clock ends."""
        for warmup in (self.arguments.get("warmup_steps"), *self.tried.get("warmup_steps", ())):
            if warmup is not None and warmup >= 1:
                raise ConfigError(
                    f"warmup_steps={warmup:g} and the budget {self.spent} were given, by which the learning rate "
                    "follows the clock; give the warm-up as a share of the run, such as warmup_steps=0.1"
                )
        args = training_arguments(self.chosen.arguments, output_dir=self.folder, seed=0)
        schedule = args.lr_scheduler_kwargs if "lr_scheduler_kwargs" in self.arguments else None
        for kwargs in (schedule, *self.tried.get("lr_scheduler_kwargs", ())):
            if (decay := (kwargs or {}).get("num_decay_steps", 0)) >= 1:
                raise ConfigError(
                    f"num_decay_steps={decay:g} and the budget {self.spent} were given, by which the learning rate "
                    "follows the clock; give the decay as a share of the run, such as num_decay_steps=0.1"
                )
        if (average := self.chosen.arguments.get("average")) is not None:
            raise ConfigError(
                f"average={average} and the budget {self.spent} were given: weights are averaged over the last part of "
                "a known number of updates; give a budget of steps, tokens or flops"
            )

    def check_design(self) -> None:
        """Refuse a margin or a limit that means nothing."""
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise ConfigError(f"margin={self.margin} was given; valid: a difference above 0, e.g. margin=0.01")
        if self.most_seeds is not None and not self.decide:
            raise ConfigError(f"most_seeds={self.most_seeds} was given without decide; give decide as well")
        limit = self.most_seeds or MOST_SEEDS
        if self.decide and not max(FEWEST_SEEDS, len(self.all_seeds)) <= limit <= MOST_LOOKS:
            raise ConfigError(
                f"most_seeds={limit} was given; valid: {max(FEWEST_SEEDS, len(self.all_seeds))}, with which it begins, "
                f"to {MOST_LOOKS}"
            )

    def common(self, splits: Splits) -> dict[str, Any]:
        chosen = self.chosen
        folder = chosen.tokenizer.get("folder")
        return plain(
            {
                "task": chosen.task,
                "task_options": chosen.task_options,
                "data": [digest_of_examples(part) for part in splits],
                "tokenizer": f"files {digest_of_files(Path(folder))}" if folder is not None else chosen.tokenizer,
                "model": chosen.model,
                "arguments": {name: value for name, value in chosen.arguments.items() if name != "seed"},
                "generation": chosen.generation,
                "budget": None if self.spent is None else str(self.spent),
                "match": self.match,
                "match_by": self.match_by,
                "match_to": self.match_to,
                "sweep": self.tried,
                **({} if self.design is None else {"design": self.design}),
                **({} if self.suite is None else {"score": self.suite.to_dict()}),
            }
        )
