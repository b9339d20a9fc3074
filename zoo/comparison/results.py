"""What a comparison finds, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.errors import ConfigError
from zoo.registry.printed import Printed

from .files import RESULTS, write_json

FORMAT = 2
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
    """One variant, trained with one seed.

    Attributes:
        name: The variant's name, with its settings, as it was given.
        folder: Where its checkpoint and its result.json are.
        seed: Of weights, dropout and the order of the data.
        hash: Of everything that decides its results; two runs with the same one are the same run.
        settings: What was chosen for it: fields of the configuration by matching, training arguments by a sweep, and
            the budget as steps.
        report: What [`zoo.training.TrainingReport`][] writes, but for its history; None where the run failed.
        costs: What `zoo.measuring.Costs` writes; None where the run failed, or nothing was measured.
        curve: What was logged while it was trained, in order: each with `step`, `tokens` and `seconds` so far, and
            `loss` (with `learning_rate` and `grad_norm`) or `heldout_loss`.
        outputs: What it wrote for the held-out examples.
        reload: What became of it in a fresh process; None where the run failed.
        error: Why it failed; None where it did not.
    """

    name: str
    folder: str
    seed: int = 0
    hash: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    costs: dict[str, Any] | None = None
    curve: list[dict[str, float]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reload: ReloadCheck | None = None
    error: str | None = None

    @property
    def label(self) -> str:
        """What no other run of a comparison is called."""
        return f"{self.name}, seed {self.seed}"

    @property
    def failed(self) -> bool:
        """Whether it has no results, or could not be loaded again."""
        return self.error is not None

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Run:
        """Read what `dataclasses.asdict` wrote.

        Args:
            written: The fields.

        Returns:
            The run.
        """
        reload = written.get("reload")
        return cls(**{**written, "reload": None if reload is None else ReloadCheck(**reload)})


@dataclass(frozen=True)
class Comparison(Printed):
    """Variants beside each other, trained with the same seeds, data and budget.

    Attributes:
        task: The task's name.
        names: The variants' names, in the order in which they were given.
        baseline: The one that the others are measured against.
        seeds: The seeds with which each was trained.
        budget: What each variant was given: `steps`, `tokens`, `flops` or `seconds`, and how much; None where the
            recipe says it.
        match: What was made equal: "none", "params" or "flops".
        sweep: What was tried before: `values` by argument, the `seed`, how it was `selected` and on how many
            `examples`, and `runs`, each with `name`, `values`, `loss`, `chosen` and `error`; None for no sweep.
        main_score: The score that decides.
        recipe: Everything that the runs have in common.
        environment: Versions and hardware.
        command: What reproduces it, as words of a shell.
        sources: What the models read.
        references: What they should have written.
        runs: The runs, variant by variant in the order of `names`, each in the order of `seeds`.
        folder: Where everything was written.
        seconds: Wall-clock time of all commands that it took, except of those that were killed.
        date: The day on which the last of its runs was made, as 2026-11-22; empty where that was not noted.
    """

    task: str
    names: list[str]
    baseline: str
    seeds: list[int]
    budget: dict[str, float] | None
    match: str
    sweep: dict[str, Any] | None
    main_score: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    command: list[str]
    sources: list[str]
    references: list[str]
    runs: list[Run]
    folder: Path
    seconds: float
    date: str = ""

    def runs_of(self, name: str) -> list[Run]:
        """The runs of a variant.

        Args:
            name: One of `names`.

        Returns:
            A run a seed, in the order of `seeds`.
        """
        return [run for run in self.runs if run.name == name]

    @property
    def failed(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if run.failed]

    def __str__(self) -> str:
        """What `print` shows: the table that `zoo compare` prints."""
        from .table import as_text  # which is made of this

        return as_text(self)

    def write(self) -> Path:
        """Write results.json.

        Returns:
            The file.
        """
        return write_json(Path(self.folder) / RESULTS, {"format": FORMAT, **asdict(self), "folder": str(self.folder)})

    @classmethod
    def read(cls, folder: str | Path) -> Comparison:
        """Read what `write` wrote.

        Args:
            folder: The comparison's folder.

        Returns:
            The comparison.

        Raises:
            ConfigError: When there is none, or it was written by another version of the zoo.
        """
        file = Path(folder) / RESULTS
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{folder} holds no finished comparison: {file} cannot be read; give the command that began it again"
            ) from error
        if not isinstance(written, dict) or written.get("format") != FORMAT:
            raise ConfigError(f"{file} was written by another version of the zoo; compare anew, in another folder")
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in written.items() if name in known}
        runs = [Run.from_dict(run) for run in written["runs"]]
        return cls(**{**values, "runs": runs, "folder": Path(folder).absolute()})
