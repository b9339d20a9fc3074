"""Tasks: what a model is trained on and how its outputs are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from zoo.base.errors import ConfigError, DataError, UnknownTaskError, UnsupportedTaskError
from zoo.data.corpora import located
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import padding_right
from zoo.registry import CORPORA, VARIANTS, Registry, parse_name, split_options
from zoo.registry.names import check_options

from .scores import Outputs, Predictions, Score
from .sources import DataSource, Splits, load_splits, set_aside, shares_of, without_leaks
from .tables import Kind

if TYPE_CHECKING:
    from datasets import Dataset
    from torch.utils.data import Dataset as Examples

    from .tables import Column, Table

TASKS: Registry[DataTask] = Registry("task", built_in="zoo.data.tasks.built_in", error=UnknownTaskError)
"""Data tasks by name. Plugins may add some."""

Task = TypeVar("Task", bound="type[DataTask]")


@dataclass(frozen=True)
class DataTask(ABC):
    """A source of examples, what turns them into batches, and what scores a model's outputs.

    A subclass is a frozen dataclass; its fields are the task's options, all with defaults.

    Attributes:
        name: Its name in `TASKS`.
        model_tasks: Tasks of models for it, e.g. "seq2seq-lm", the usual one first.
        shipped: The data that is used when none is given, None where it must be given or is made.
        makes_examples: Whether the task makes examples itself, by its options.
        kinds: Kind of content of each column of an example.
        main_score: The score that decides which of two models is better.
        scored_by: How outputs are made, unless an option overrides it.
        collator_class: The class of transformers that makes batches of examples, unless `collator` does.
        recipe: The recipe that is used when none is given, by default the one called like the task.
        options_for: The option that makes the task one for another kind of model, by what that is built for.
    """

    name: ClassVar[str]
    model_tasks: ClassVar[tuple[str, ...]]
    shipped: ClassVar[Path | None] = None
    makes_examples: ClassVar[bool] = False
    kinds: ClassVar[tuple[Kind, ...]]
    main_score: ClassVar[str]
    scored_by: ClassVar[Outputs] = Outputs.GENERATED
    collator_class: ClassVar[str | None] = None
    recipe: ClassVar[str | None] = None
    options_for: ClassVar[Mapping[str, str]] = {}

    @property
    def model_task(self) -> str:
        return self.model_tasks[0]

    @property
    def outputs(self) -> Outputs:
        """How outputs come about."""
        return self.scored_by

    def suits(self, name: str) -> bool:
        """Whether a variant, possibly with settings, can be built for the task."""
        return self.model_task in VARIANTS.get(parse_name(name).name).tasks

    def check_variant(self, name: str) -> None:
        """Refuse a variant that cannot be built for the task; the message names the option that would suit it."""
        if self.suits(name):
            return
        variant = VARIANTS.get(parse_name(name).name)
        suiting = [f"{self.name}:{option}" for task, option in self.options_for.items() if task in variant.tasks]
        trained = [task for task in TASKS if TASKS.get(task).suits(name)]
        raise UnsupportedTaskError(self.name, variant.name, trained, next(iter(suiting), None))

    def misfit(self, config: Any) -> str | None:
        """Why the scores of a model of this configuration would be wrong; None where they are not."""
        return None

    def configured(self, options: Mapping[str, Any]) -> Self:
        """Another task with these options; an unknown name or an invalid value is an error."""
        check_options(options, {field.name: field.default for field in fields(self)}, f"task {self.name!r}")
        try:
            return replace(self, **options)
        except TypeError as error:
            raise ConfigError(f"options of task {self.name!r} are not valid: {error}") from error

    def check_option(self, option: str, holds: bool, valid: str) -> None:
        """Raise ConfigError with an option's value and the valid ones, unless the condition holds."""
        if not holds:
            raise ConfigError(f"{option}={getattr(self, option)!r} is not valid; {valid}")

    def check_counts(self, *options: str, unit: str | None = None) -> None:
        """Require whole numbers, at least 1, or None where that is the default."""
        valid = f"it is a number{f' of {unit}' if unit else ''}, at least 1"
        for field in fields(self):
            if field.name in options and (value := getattr(self, field.name)) is not field.default:
                self.check_option(field.name, type(value) is int and value >= 1, valid)

    def refuse_given(self, options: Iterable[str], reason: str) -> None:
        """Raise ConfigError for an option with another value than its default."""
        for field in fields(self):
            if field.name in options and getattr(self, field.name) != field.default:
                raise ConfigError(f"{field.name}={getattr(self, field.name)!r} was given, {reason}")

    def tokens_per_word(self, examples: Any, encoded: Any, tokenizers: Tokenizers) -> float | None:
        """Average number of tokens of a word in texts that are read as one row; None for other examples."""
        return None

    def fitted(self, splits: Splits) -> Self:
        """Learn from training examples what the task must know, such as the labels: another task, or this one."""
        return self

    def fitted_to(self, config: Any) -> Self:
        """Take from a trained model what it learned by `fitted`: another task, or this one."""
        return self

    def load(
        self,
        data: str | Path | None = None,
        *,
        heldout: str | Path | None = None,
        columns: Sequence[Column] | None = None,
        seed: int = 0,
    ) -> Splits:
        """Load the examples.

        Args:
            data: A file or folder, or the name of a corpus; by default what ships with the zoo.
            heldout: The file to evaluate on, by default that of `data`.
            columns: Names or numbers of the columns to read, by default those named like what they hold.
            seed: Seed of the examples that are set aside without a held-out file.

        Returns:
            Examples to train on and to evaluate on.

        Raises:
            DataError: When they cannot be read.
        """
        if data is not None and shares_of(str(data)) is not None:
            raise DataError(f"task {self.name!r} takes no mixture ({data}); language modelling does")
        source = self.shipped if data is None else located(data)
        if isinstance(source, str) and source in CORPORA and not Path(source).exists():
            problem = f"corpus {str(source)!r} is raw text, which task {self.name!r} does not read"
            raise DataError(f"{problem}; language-modeling, masked-language-modeling and span-corruption do")
        if source is None:
            raise DataError(f"task {self.name!r} has no data; give some (--data)")
        return load_splits(
            source, heldout=heldout, columns=columns, kinds=self.kinds, seed=seed, mismatch=self.mismatch
        )

    def load_from(self, source: DataSource) -> Splits:
        """Load examples, without training examples that are held out too, and record where they come from."""
        found = self.load(source.data, heldout=source.heldout, columns=source.columns, seed=source.seed)
        return replace(without_leaks(found, self.kinds), source=source)

    def set_aside(self, examples: Dataset, *, seed: int = 0) -> Splits:
        """Split training examples into those to train on and some to choose by, as held-out ones must not decide."""
        if len(examples) < 2:
            raise DataError(f"task {self.name!r} has one example to train on, so none can be set aside")
        return set_aside(examples, seed)

    def mismatch(self, train: Table, heldout: Table) -> str | None:
        """Why a model trained on these examples cannot be evaluated on those of another file; None where it can."""
        return None

    def prepare(self, splits: Splits, tokenizers: Tokenizers, *, progress: bool = False) -> Splits:
        """Encode examples that are too many for memory into files, once, as `encode` takes them.

        A line that is not valid, or a file that changes while it is read, is a DataError.
        """
        return splits

    @abstractmethod
    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train the tokenizers that a model of this task needs.

        Args:
            examples: Training examples.
            options: As for [`zoo.data.tasks.train_tokenizers`][].

        Returns:
            The tokenizers.
        """

    @abstractmethod
    def encode(
        self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0
    ) -> Dataset | Examples[Any]:
        """Turn text into ids.

        Args:
            examples: Text columns.
            tokenizers: Tokenizers that encode the examples.
            training: Whether they are to be trained on, and not evaluated on: some tasks then draw blocks or masks.
            seed: Of what is drawn.

        Returns:
            The model's inputs and labels: a dataset with a column `length`, the number of source and target tokens,
            for bucketing, or a torch dataset of a known length.

        Raises:
            DataError: When nothing can be learned from them.
        """

    def collator(self, tokenizers: Tokenizers) -> Callable[[Any], dict[str, Any]]:
        """Make a collator of encoded examples, which pads labels with -100, so that padding never counts."""
        import transformers

        if self.collator_class is None:
            raise NotImplementedError(f"{type(self).__name__} has neither a collator_class nor a collator of its own")
        made: Callable[..., Callable[[Any], dict[str, Any]]] = getattr(transformers, self.collator_class)
        return made(padding_right(tokenizers.source))

    @abstractmethod
    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Fields of [`zoo.models.ZooConfig`][] that fit the tokenizers: sizes of vocabularies, special ids."""

    def sources(self, examples: Dataset) -> list[str]:
        """Inputs as text, one an example; by default the first column of two, and none of raw text."""
        return examples[examples.column_names[0]][:] if len(self.kinds) > 1 else []

    def references(self, examples: Dataset) -> list[str]:
        """Right answers as text, one an example; by default the second column, if there is one."""
        return examples[examples.column_names[1]][:] if len(self.kinds) > 1 else []

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        """How often every label occurs; empty where examples have no labels."""
        return {}

    def samples(self, examples: Dataset, most: int) -> list[str]:
        """At most `most` short texts as a model may meet them, to check that its answers stay the same."""
        return self.sources(examples.select(range(min(most, len(examples)))))

    def texts(self, ids: Sequence[Any], tokenizers: Tokenizers) -> list[str]:
        """Write predicted ids, *Shape:* (num_labels_of_example,), as text; only for tasks with predicted outputs."""
        return []

    @abstractmethod
    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Compare a model's outputs for examples with the correct ones: scores by name, `main_score` among them.

        `n_bootstrap` is how often to resample the examples for confidence intervals; 1 for none.
        """


def register_task(task: Task) -> Task:
    """Decorator: register a task by its name, with the defaults of its options."""
    TASKS.register(task.name, task(), module=task.__module__)
    return task


def find_task(name: str, options: Mapping[str, Any] | None = None) -> DataTask:
    """Look a task up.

    Args:
        name: Its name, possibly with options: "translation", "language-modeling:block_size=64".
        options: Other options; those in the name take precedence.

    Raises:
        UnknownTaskError: When the task is unknown.
        UnknownNameError: When it has no such option.
        ConfigError: When an option's value is not valid.
    """
    bare, in_name = split_name(name)
    return TASKS.get(bare).configured({**(options or {}), **in_name})


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """Separate a task's name from the options after it: "language-modeling:block_size=64"."""
    return split_options(name, "task")
