"""Results of a comparison, as plain data: results.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.base import formats
from zoo.base.errors import ConfigError
from zoo.base.files import read_json, write_json
from zoo.base.printed import Part, Printed

from ..files import RESULTS
from ..run.record import Run


@dataclass(frozen=True)
class Comparison(Printed):
    """Variants, trained with the same seeds, data and budget.

    Attributes:
        task: The task's name.
        names: The variants' names, in the order in which they were given.
        baseline: The one that the others are measured against.
        seeds: The seeds with which each was trained.
        budget: Budget of each variant: `steps`, `tokens`, `flops` or `seconds`, and how much; None where the
            recipe sets it.
        match: Matched quantity: "none", "params" or "flops".
        match_to: The variant that the others were made equal to; None for the baseline.
        design: Rules for verdicts: the `margin` within which a difference is none, and the `limit` of seeds up to
            which undecided variants got another one, each None without one; None for neither.
        data: Hashes of the training and the held-out examples; empty where an older version of the zoo recorded it.
        data_settings: Fields of configurations that follow from the data, the tokenizers, and the weights that training
            starts from, such as the vocabulary's size; empty where an older version of the zoo recorded it.
        sweep: Earlier trials: `values` by argument, the `seed`, how it was `selected` and on how many
            `examples`, and `runs`, each with `name`, `values`, `loss`, `chosen` and `error`; None for no sweep.
        main_score: The score that decides.
        recipe: Everything that the runs have in common.
        environment: Versions and hardware.
        command: Command that reproduces it, as words of a shell.
        sources: Inputs of the models.
        references: Correct outputs.
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
    match_to: str | None = None
    data: list[str] = field(default_factory=list)
    design: dict[str, Any] | None = None
    data_settings: dict[str, Any] = field(default_factory=dict)

    def runs_of(self, name: str) -> list[Run]:
        """A variant's runs, in the order of `seeds`."""
        return [run for run in self.runs if run.name == name]

    @property
    def failed(self) -> list[Run]:
        return [run for run in self.runs if run.failed]

    def shown(self) -> Iterable[Part]:
        """The table that `zoo compare` prints, and its findings."""
        from ..display.terminal import parts_of  # which imports this

        return parts_of(self)

    def __str__(self) -> str:
        """The text for `print`: the same, as wide as the terminal, with examples of what the models write."""
        from ..display.terminal import as_text  # which imports this

        return as_text(self)

    def write(self) -> Path:
        """Write results.json."""
        from .fairness import fairness_sheet  # which imports this

        sheet = {"fairness": asdict(fairness_sheet(self))}
        return write_json(
            Path(self.folder) / RESULTS, {**formats.RESULTS.stamp, **asdict(self), "folder": str(self.folder), **sheet}
        )

    @classmethod
    def read(cls, folder: str | Path) -> Comparison:
        """Read what `write` wrote.

        Raises:
            ConfigError: When the folder has none.
            FormatVersionError: When it has a version of the format that is not read.
        """
        file = Path(folder) / RESULTS
        try:
            written = read_json(file)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{folder} holds no finished comparison: {file} cannot be read; give the command that began it again"
            ) from error
        if not isinstance(written, dict):
            raise ConfigError(f"{file} holds no results of a comparison; compare again, in another folder")
        versions = (written.get("environment") or {}).get("versions") or {}
        formats.RESULTS.check(written, file, versions.get(formats.DISTRIBUTION))
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in written.items() if name in known}
        was, here = Path(written["folder"]), Path(folder).absolute()
        runs = [Run.from_dict({**run, "folder": moved(run["folder"], was, here)}) for run in written["runs"]]
        command = [moved(word, was, here) for word in written["command"]]
        return cls(**{**values, "runs": runs, "command": command, "folder": here})


def moved(path: str, was: Path, here: Path) -> str:
    """Write a path below a folder that has been moved as it is now; others stay as they are."""
    return str(here / Path(path).relative_to(was)) if Path(path).is_relative_to(was) else path
