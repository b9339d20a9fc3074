"""Tasks: what a model is trained on and how its outputs are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UnknownTaskError
from zoo.registry import Registry

from .scores import Score
from .sources import Splits, load_splits
from .tokenizers import Tokenizers

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import DataCollatorForSeq2Seq

    from .reading import Column

TASKS: Registry[DataTask] = Registry("task", built_in="zoo.tasks.translation", error=UnknownTaskError)
"""What models can be trained on, by name. Plugins may add to it."""


class DataTask(ABC):
    """A source of examples, what turns them into batches, and what scores a model's outputs.

    Attributes:
        name: Its name in `TASKS`.
        model_task: What a model must be built for, e.g. "seq2seq-lm".
        shipped: The data that is used when none is given.
        num_columns: How many text columns an example has.
        main_score: The score that decides which of two models is better.
    """

    name: ClassVar[str]
    model_task: ClassVar[str]
    shipped: ClassVar[Path]
    num_columns: ClassVar[int]
    main_score: ClassVar[str]

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
            data: A file or folder, by default what ships with the zoo.
            heldout: The file to evaluate on, by default what `data` says.
            columns: Names or numbers of the columns to read, by default the first ones.
            seed: Which examples are set aside where no file says so.

        Returns:
            Examples to train on and to evaluate on.

        Raises:
            DataError: When they cannot be read.
        """
        source = data if data is not None else self.shipped
        return load_splits(source, heldout=heldout, columns=columns, count=self.num_columns, seed=seed)

    @abstractmethod
    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train the tokenizers that a model of this task needs.

        Args:
            examples: What to train on.
            options: As for [`zoo.tasks.train_tokenizers`][].

        Returns:
            The tokenizers.
        """

    @abstractmethod
    def encode(self, examples: Dataset, tokenizers: Tokenizers) -> Dataset:
        """Turn text into ids.

        Args:
            examples: Text columns.
            tokenizers: What reads them.

        Returns:
            The model's inputs and labels, and `length`, the number of source and target tokens, for bucketing.
        """

    @abstractmethod
    def collator(self, tokenizers: Tokenizers) -> DataCollatorForSeq2Seq:
        """Make what pads encoded examples into batches.

        Args:
            tokenizers: Whose padding to use.

        Returns:
            A collator whose labels are -100 on padding, so that padding never counts.
        """

    @abstractmethod
    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Say what a model's configuration must have to fit the tokenizers.

        Args:
            tokenizers: The tokenizers.

        Returns:
            Fields of [`zoo.models.ZooConfig`][]: sizes of vocabularies and ids of special tokens.
        """

    @abstractmethod
    def sources(self, examples: Dataset) -> list[str]:
        """What a model reads.

        Args:
            examples: Text columns.

        Returns:
            A text an example.
        """

    @abstractmethod
    def references(self, examples: Dataset) -> list[str]:
        """What a model should write.

        Args:
            examples: Text columns.

        Returns:
            A text an example.
        """

    @abstractmethod
    def score(self, outputs: Sequence[str], examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Compare what a model wrote with what it should have written.

        Args:
            outputs: A text an example.
            examples: The examples, in the same order.
            n_bootstrap: How often to resample the examples for confidence intervals; 1 for none.

        Returns:
            Scores by their names, `main_score` among them.
        """
