"""What a comparison finds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of results.json."""


@dataclass(frozen=True)
class ReloadCheck:
    """How a saved model behaves in a fresh process, beside how it behaved before.

    Attributes:
        auto_class: The Auto class that loaded it.
        largest_difference: Between two logits.
        outputs_equal: Whether greedy outputs, or the best ids, are the same.
        equal: Whether both agree, up to float rounding.
    """

    auto_class: str
    largest_difference: float
    outputs_equal: bool
    equal: bool


@dataclass(frozen=True)
class Run:
    """One variant's part of a comparison.

    Attributes:
        name: The variant's name, with its settings.
        folder: Where its checkpoint and its result.json are.
        report: What [`zoo.training.TrainingReport`][] writes; None where the run failed.
        outputs: What it wrote for the held-out examples.
        reload: What became of it in a fresh process; None where the run failed.
        error: Why it failed; None where it did not.
    """

    name: str
    folder: str
    report: dict[str, Any] | None = None
    outputs: list[str] = field(default_factory=list)
    reload: ReloadCheck | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it has no results, or could not be loaded again."""
        return self.error is not None


@dataclass(frozen=True)
class Comparison:
    """Variants beside each other, trained under the same seed, data and budget.

    Attributes:
        task: The task's name.
        seed: The seed.
        main_score: The score that decides.
        recipe: Everything that the runs have in common.
        environment: Versions and hardware.
        sources: What the models read.
        references: What they should have written.
        runs: The variants, in the order in which they were given.
        folder: Where everything was written.
        seconds: Wall-clock time of the whole comparison.
    """

    task: str
    seed: int
    main_score: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    sources: list[str]
    references: list[str]
    runs: list[Run]
    folder: Path
    seconds: float

    @property
    def best(self) -> Run | None:
        """The run with the best main score, None where all failed."""
        finished = [run for run in self.runs if run.report is not None]
        return max(finished, key=self.goodness, default=None)

    def score(self, run: Run) -> float:
        """A run's main score.

        Args:
            run: One of the runs.

        Returns:
            The score, or minus infinity where the run failed.
        """
        if run.report is None:
            return float("-inf")
        return float(run.report["scores"][self.main_score]["value"])

    def goodness(self, run: Run) -> float:
        """A run's main score, such that more is better.

        Args:
            run: A run that was trained.

        Returns:
            The score, or minus the score where less is better, as of perplexities.
        """
        report = run.report or {"scores": {}}
        higher = report["scores"].get(self.main_score, {}).get("higher_is_better", True)
        return self.score(run) if higher else -self.score(run)
