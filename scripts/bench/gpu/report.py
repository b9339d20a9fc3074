"""Results of a run on a GPU, as the part of docs/performance.md on GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from measuring import Row
from tables import table

NOTHING = "No GPU has been measured: what follows a run is written by `--document`, and nothing has been yet.\n"

LOSS, UTILISATION, GRAPHS = 1.47, 0.45, 3.0
"""Aims: nanoGPT's validation loss, the share of the peak, and the gain of a static cache over a growing one."""


def to_markdown(found: dict[str, Any]) -> str:
    done = found["pieces"]
    if not done:
        return NOTHING
    lines = [", ".join(f"{key} {value}" for key, value in found["about"].items()), ""]
    if reached := list(aims(done)):
        lines += ["| aim | found | |", "|---|---:|---|", *reached, ""]
    lines += suite_lines(rows_of(done, "suite"))
    if fidelity := rows_of(done, "fidelity"):
        lines += ["| converted | dtype | deviation |", "|---|---|---:|"]
        lines += [f"| {row['family']} | {row['dtype']} | {row['deviation']:.0e} |" for row in fidelity] + [""]
    for name, piece in done.items():
        if piece["kind"] == "speed":
            rows = [Row(**row) for row in piece["rows"]]
            columns = table([row.peer for row in rows], {"": rows}, ("ms", "ratio", "of limit", "MB"))
            lines += [f"**{name}**", "", *columns, ""]
    return "\n".join(lines)


def rows_of(done: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The rows of all pieces of a kind."""
    return [row for piece in done.values() if piece["kind"] == kind for row in piece["rows"]]


def suite_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How many checks hold, and which do not."""
    failed = {name: why for row in rows for name, why in row["failed"].items()}
    checks = sum(row["checks"] for row in rows)
    summary = f"Of {checks} checks of {len(rows)} variants, {checks - len(failed)} hold on the device."
    return [summary, "", *(f"- {name}: {why}" for name, why in failed.items()), ""] if rows else []


def aims(done: dict[str, Any]) -> Iterable[str]:
    speed = rows_of(done, "speed")
    ours = [row for row in speed if row["kind"] == "zoo"]
    for row in rows_of(done, "training"):
        yield aim(f"nanoGPT's recipe: held-out loss at most {LOSS}", row["heldout_loss"], row["heldout_loss"] <= LOSS)
    for row in ours:
        if row["workload"] == "causal LM training step" and row["of_limit"] is not None:
            yield aim(
                f"124 M model: at least {UTILISATION:.0%} of the peak", row["of_limit"], row["of_limit"] >= UTILISATION
            )
    for static in (row for row in ours if row["workload"].startswith("generation, static cache")):
        (growing,) = (
            row["milliseconds"]
            for row in speed
            if (row["workload"], row["peer"]) == (static["workload"], "zoo, dynamic cache")
        )
        gain = growing / static["milliseconds"]
        yield aim(f"{static['workload']}: at least {GRAPHS:g} times the growing one", gain, gain >= GRAPHS)
    slower = [row["workload"] for row in ours if row["ratio"] < 1 and not row["workload"].startswith("back ends")]
    if ours:
        yield f"| faster than transformers in every row | {', '.join(slower) or 'all'} | {verdict(not slower)} |"


def aim(what: str, found: float, holds: bool) -> str:
    return f"| {what} | {found:.3g} | {verdict(holds)} |"


def verdict(holds: bool) -> str:
    return "reached" if holds else "not reached"
