"""Measurements as tables: on the terminal during a run, and in docs/performance.md from recordings.

A recording is a file next to this one, named in `RECORDINGS`, that `run.py -o` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import Row

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs/performance.md"
RECORDINGS = {"two threads": HERE / "threads-2.json", "one thread": HERE / "threads-1.json", "AVX2": HERE / "avx2.json"}

COLUMNS: dict[str, Callable[[Row], str]] = {
    "ms": lambda row: f"{row.milliseconds:.1f}",
    "ratio": lambda row: f"{row.ratio:.2f}",
    "spread": lambda row: f"±{row.spread:.2f}",
    "deviation": lambda row: "" if row.deviation is None else f"{row.deviation:.0e}",
    "same tokens": lambda row: "" if row.agreement is None else f"{row.agreement:.1%}",
    "GFLOP": lambda row: "" if row.gflop is None else f"{row.gflop:.3g}",
    "of limit": lambda row: "" if row.of_limit is None else f"{row.of_limit:.0%}",
    "of bandwidth": lambda row: "" if row.of_bandwidth is None else f"{row.of_bandwidth:.0%}",
    "MB": lambda row: "" if row.megabytes is None else f"{row.megabytes:.1f}",
}
"""Columns of a table; those without any entry are left out."""

TIMED = ("ms", "ratio", "spread", "of limit", "of bandwidth")
"""Columns that each number of threads has for itself on the page; of the others the first recording's are shown."""

ONLY = {"AVX2": ("ratio",)}
"""Settings with these columns alone on the page: they show whether the order of peers differs."""


def to_markdown(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """A table for each workload, under a line that names machine and versions."""
    lines = [description(about), ""]
    for workload in dict.fromkeys(row.workload for row in rows):
        chosen = [row for row in rows if row.workload == workload]
        lines += [f"**{workload}**", "", *table([row.peer for row in chosen], {"": chosen}, tuple(COLUMNS)), ""]
    return "\n".join(lines)


def description(about: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items())


def table(peers: Sequence[str], rows: Mapping[str, Sequence[Row]], names: Sequence[str]) -> list[str]:
    """A row a peer, with the columns of each setting side by side; those without any entry are left out."""
    columns = [(setting, name) for setting in rows for name in names if any(map(COLUMNS[name], rows[setting]))]
    first = next(iter(rows))
    columns = [column for column in columns if column[0] == first or column[1] in ONLY.get(column[0], TIMED)]
    heads = [f"{setting}: {name}" if setting and name in TIMED else name for setting, name in columns]
    lines = [f"| peer | {' | '.join(heads)} |", f"|---|{'---:|' * len(columns)}"]
    of = {setting: {row.peer: row for row in chosen} for setting, chosen in rows.items()}
    for peer in peers:
        cells = [COLUMNS[name](of[setting][peer]) if peer in of[setting] else "" for setting, name in columns]
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    return lines


def recorded() -> str:
    """The part of the page: each workload's table, settings side by side."""
    found = {setting: json.loads(file.read_text(encoding="utf-8")) for setting, file in RECORDINGS.items()}
    lines = [f"- {setting}: {description(recording['about'])}" for setting, recording in found.items()] + [""]
    for workload in dict.fromkeys(name for recording in found.values() for name in recording["rows"]):
        rows = {setting: rows_of(recording, workload) for setting, recording in found.items()}
        peers = dict.fromkeys(row.peer for chosen in rows.values() for row in chosen)
        lines += [f"**{workload}**{dated(found, workload)}", "", *table(list(peers), rows, tuple(COLUMNS)), ""]
    return "\n".join(lines)


def dated(found: Mapping[str, Any], workload: str) -> str:
    """When a workload was measured, where that is not the date of the whole recording."""
    dates = [
        f"{setting} {date}"
        for setting, recording in found.items()
        if (date := recording.get("dates", {}).get(workload, recording["about"]["date"])) != recording["about"]["date"]
    ]
    return f" ({', '.join(dates)})" * bool(dates)


def rows_of(recording: Mapping[str, Any], workload: str) -> list[Row]:
    return [Row(**row) for row in recording["rows"].get(workload, [])]
