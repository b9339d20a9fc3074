"""What a comparison was asked for, in the words of Python or of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.building import config
from zoo.errors import ConfigError, InvalidChoiceError
from zoo.tasks import DataSource, Splits
from zoo.tasks.tables import Column
from zoo.training import Recipe
from zoo.training.arguments import check_numbers, training_arguments
from zoo.training.inputs import full_recipe
from zoo.training.recipe import recipe_for
from zoo.training.record import digest_of_examples

from ..files import plain, write_json
from .budget import LENGTHS, Budget, read_budget
from .options import MATCHES, WAYS
from .seeds import DATA_SEED, read_seeds

if TYPE_CHECKING:
    from ..plan import Plan
from ..fingerprints import digest_of_files
from .sweep import Values, read_sweep, write_values

RECIPE = "recipe.json"
"""The recipe of a comparison that no file holds, in the comparison's folder."""


@dataclass(frozen=True)
class Request:
    """What is asked for. The attributes are the arguments of [`zoo.compare`][] of the same names."""

    names: Sequence[str]
    task: str | None = None
    data: str | Path | None = None
    heldout: str | Path | None = None
    columns: Sequence[Column] | None = None
    recipe: str | Path | Recipe | None = None
    tokenizer: str | Path | Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    generation: Mapping[str, Any] | None = None
    seeds: int | str | Iterable[int] = 1
    seed: int = 0
    budget: str | Mapping[str, float] | None = None
    match: str = "none"
    match_by: str | None = None
    sweep: str | Iterable[str] | Mapping[str, Sequence[Any]] | None = None
    baseline: str | None = None
    output_dir: str | Path | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def chosen(self) -> Recipe:
        """How every variant is trained, before anything is matched, budgeted or swept."""
        said: dict[str, Any] = {"arguments": self.arguments, "settings": self.settings, "generation": self.generation}
        return full_recipe(self.task, self.recipe, **said, tokenizer=self.tokenizer)

    @cached_property
    def source(self) -> DataSource:
        """Where the examples are, for processes that may run elsewhere; which are held out depends on no seed."""
        return DataSource.of(self.data, self.heldout, self.columns, DATA_SEED)

    @cached_property
    def folder(self) -> Path:
        """Where everything goes."""
        default = Path("outputs") / f"compare-{self.chosen.task}"
        return Path(self.output_dir if self.output_dir is not None else default).absolute()

    @cached_property
    def spent(self) -> Budget | None:
        """How long every run is."""
        return read_budget(self.budget)

    @cached_property
    def tried(self) -> Values:
        """What is swept."""
        return read_sweep(self.sweep)

    @cached_property
    def all_seeds(self) -> list[int]:
        """The seeds."""
        return read_seeds(self.seeds, self.chosen.arguments.get("seed", self.seed))

    def check(self) -> None:
        """Refuse what can be refused without any data.

        Raises:
            ZooError: With the first thing that is wrong.
        """
        check_names(self.names)
        for value, valid, kind in ((self.match, MATCHES, "match"), (self.match_by or WAYS[0], WAYS, "match_by")):
            if value not in valid:
                raise InvalidChoiceError(str(value), valid, kind=kind)
        if self.match_by is not None and self.match == "none":
            raise ConfigError(
                f"match_by={self.match_by} was given, but nothing is matched; give match=params or =flops"
            )
        for length in LENGTHS:
            if self.spent is not None and length in self.arguments:
                raise ConfigError(
                    f"both the budget {self.spent} and {length} were given, which may contradict each other"
                )
        for swept in self.tried:
            if swept in self.arguments:
                raise ConfigError(f"{swept} was given, and is to be swept as well; give one of both")
        task = self.chosen.data_task()
        for name in self.names:
            task.check_variant(name)
            self.chosen.check_name(name)
            config(name, task.model_task, **self.chosen.model_settings(name))
        for name, values in [("seed", self.all_seeds), *self.tried.items()]:
            for value in values:
                check_numbers({name: value})
        firsts = {name: values[0] for name, values in self.tried.items()}
        training_arguments({**self.chosen.arguments, **firsts}, output_dir=self.folder, seed=0)

    def common(self, splits: Splits) -> dict[str, Any]:
        """Say what all runs have in common, so that other runs can be told from them.

        Args:
            splits: The examples.

        Returns:
            Plain data.
        """
        chosen = self.chosen
        common: dict[str, Any] = plain(
            {
                "task": chosen.task,
                "task_options": chosen.task_options,
                "data": [digest_of_examples(part) for part in splits],
                "tokenizer": told_of_tokenizer(chosen),
                "model": chosen.model,
                "arguments": {name: value for name, value in chosen.arguments.items() if name != "seed"},
                "generation": chosen.generation,
                "budget": None if self.spent is None else str(self.spent),
                "match": self.match,
                "match_by": self.match_by,
                "sweep": self.tried,
            }
        )
        return common

    def command(self, plan: Plan) -> list[str]:
        """Write the command that reproduces a comparison.

        Args:
            plan: What is compared by now.

        Returns:
            Words of a shell. A recipe that no file holds is in the comparison's folder.
        """
        words = ["zoo", "compare", *plan.names]
        kept = isinstance(self.recipe, Recipe) or isinstance(self.tokenizer, Mapping) or bool(self.generation)
        task = None if self.task is None else str(self.task)
        recipe = None if self.recipe is None or kept else str(self.recipe)
        tokenizer = None if self.tokenizer is None or kept else str(self.tokenizer)
        if kept:
            told = self.tokenizer if isinstance(self.tokenizer, Mapping) else None
            whole = recipe_for(self.task, self.recipe).changed(tokenizer=told, generation=self.generation)
            task, recipe = None, str(write_json(self.folder / RECIPE, plain(asdict(whole))))
            tokenizer = None if told is not None or self.tokenizer is None else str(self.tokenizer)
        columns = None if self.columns is None else ",".join(map(str, self.columns))
        flags: list[tuple[str, Any]] = [
            ("--task", task),
            ("--recipe", recipe),
            ("--data", self.source.data),
            ("--heldout", self.source.heldout),
            ("--columns", columns),
            ("--tokenizer", tokenizer),
            *(("--training", f"{name}={value}") for name, value in self.arguments.items()),
            *(("--set", f"{name}={value}") for name, value in (self.settings or {}).items()),
            ("--seeds", ",".join(map(str, plan.seeds)) if len(plan.seeds) > 1 else None),
            ("--seed", str(plan.seeds[0]) if len(plan.seeds) == 1 else None),
            ("--budget", None if self.spent is None else str(self.spent)),
            ("--match", None if self.match == "none" else self.match),
            ("--match-by", self.match_by),
            *(("--sweep", write_values(name, values)) for name, values in self.tried.items()),
            ("--baseline", None if plan.baseline == plan.names[0] else plan.baseline),
            ("-o", str(self.folder)),
        ]
        return [*words, *(word for flag, value in flags if value is not None for word in (flag, value))]


def check_names(names: Sequence[str]) -> None:
    """Require names to be there, and to differ.

    Args:
        names: What was given.

    Raises:
        ConfigError: When there are none, or one is given twice.
    """
    if not names:
        raise ConfigError("no variant was given; give the names of those to compare")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name!r} was given twice; give each variant once, or variants with different settings")


def told_of_tokenizer(recipe: Recipe) -> Any:
    """Say which tokenizer is meant, wherever it is.

    Args:
        recipe: The recipe.

    Returns:
        Its kind and options, or a short name for its files.
    """
    folder = recipe.tokenizer.get("folder")
    return f"files {digest_of_files(Path(folder))}" if folder is not None else dict(recipe.tokenizer)
