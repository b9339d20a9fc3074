"""Recorded results: one row a run, in a CSV file a benchmark."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError, raised_as
from zoo.base.files import write_file, written
from zoo.base.folders import locked
from zoo.base.formats import ROWS
from zoo.base.manifest import sha256_of
from zoo.comparison.files import LOCK
from zoo.comparison.results.design import finite

SHIPPED = "shipped"
"""Name of data that ship, or that the task makes."""


DECAYED = "decayed"  # The key of `Row.settings` with the roles of parameters with weight decay, for rules by class


@dataclass(frozen=True)
class Row:
    """One run of a benchmark.

    Attributes:
        version: The benchmark's version.
        condition: Which of its conditions.
        variant: The variant's name.
        seed: The seed.
        data: `SHIPPED`, or the SHA-256 of the text that was brought (`name_of_data`).
        settings: Settings chosen for the run: sizes by matching, training arguments by a sweep, the values that the
            sweep `tried`, and roles of parameters that weight decay applied to (`DECAYED`).
        values: Scores and costs, by the names of their columns.
        error: Why it has none; empty if it has them.
        digest: Of everything that decided the run, see docs/comparing.md.
        zoo: The zoo's version.
        torch: PyTorch's.
        transformers: That of transformers.
        python: Python's.
        machine: The processor or the accelerator.
        threads: How many threads computed.
        load: Processes that wanted a processor in the minute before the run was recorded, itself included: above
            `threads`, speeds are meaningless.
        date: The day, as 2026-11-22.
    """

    version: int
    condition: str
    variant: str
    seed: int
    data: str = SHIPPED
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    digest: str = ""
    zoo: str = ""
    torch: str = ""
    transformers: str = ""
    python: str = ""
    machine: str = ""
    threads: int = 0
    load: float = 0.0
    date: str = ""

    @property
    def key(self) -> tuple[int, str, str, int, str]:
        return self.version, self.condition, self.variant, self.seed, self.data

    def number(self, column: str) -> float | None:
        """The value of a column; None where the run failed or diverged, or has none."""
        return None if self.error else finite(self.values.get(column))

    @property
    def was_busy(self) -> bool:
        """Whether the machine had other work during the run, which makes its speeds meaningless."""
        return self.load > self.threads + 1


FIXED = tuple(one.name for one in fields(Row) if one.name != "values")
"""The columns that every file has, before those of scores and costs. Later formats add "format"."""


def name_of_data(data: Path | None) -> str:
    """Name of data in rows: `SHIPPED`, or the SHA-256 of the file, or of a folder's files as sha256sum lists them."""
    if data is None:
        return SHIPPED
    if not data.is_dir():
        return sha256_of(data)
    files = {file.relative_to(data).as_posix(): file for file in data.rglob("*") if file.is_file()}
    lines = [f"{sha256_of(file)}  {name}\n" for name, file in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_rows(file: Path) -> list[Row]:
    """Read what was recorded.

    Raises:
        CheckpointError: When it is not such a file, or of a newer format.
    """
    if not file.is_file():
        return []
    errors = (OSError, ValueError, TypeError, KeyError, csv.Error)
    with raised_as(CheckpointError, lambda error: f"{file} holds no results of a benchmark: {error}", *errors):
        text = file.read_text(encoding="utf-8")
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
        for line in lines:
            ROWS.check({name: int(line[name]) for name in ROWS.stamp if name in line}, file, line["zoo"])
        return [row_of(line) for line in lines]


def row_of(line: Mapping[str, str]) -> Row:
    values = {name: float(cell) for name, cell in line.items() if name not in (*FIXED, ROWS.key) and cell}
    fixed: dict[str, Any] = {name: line[name] for name in FIXED}
    numbers = {name: int(fixed[name]) for name in ("version", "seed", "threads")}
    return Row(
        **{**fixed, **numbers, "load": float(fixed["load"]), "settings": json.loads(fixed["settings"])}, values=values
    )


def write_rows(file: Path, rows: Iterable[Row]) -> None:
    """Write rows, whole or not at all, in an order that does not depend on when they were made."""
    ordered = sorted(rows, key=lambda row: row.key)
    columns = sorted({name for row in ordered for name in row.values})
    text = io.StringIO(newline="")
    stamp = ROWS.stamp if ROWS.version > 1 else {}
    writer = csv.DictWriter(text, [*stamp, *FIXED, *columns], lineterminator="\n")
    writer.writeheader()
    for row in ordered:
        fixed = {name: getattr(row, name) for name in FIXED}
        writer.writerow({**stamp, **fixed, "settings": json.dumps(row.settings, sort_keys=True), **row.values})
    write_file(file, text.getvalue())


def record(file: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file, one process after the other; a row that is there already is replaced."""
    with written(file), locked(file.parent / LOCK):
        found = {row.key: row for row in read_rows(file)}
        write_rows(file, (found | {row.key: row for row in rows}).values())
