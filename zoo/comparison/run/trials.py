"""A sweep's trials: which was the best, and what is recorded of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..request.sweep import Values, at_the_edge
from .record import Run


def loss_of(run: Run) -> float:
    """What a trial is judged by: the loss on the examples that were set aside, infinite where it failed."""
    loss = math.inf if run.report is None else float(run.report["heldout_loss"])
    return loss if math.isfinite(loss) else math.inf


def best_of(trials: Sequence[Run]) -> Run | None:
    """Choose the first trial with the lowest loss; None where all failed."""
    return min((run for run in trials if loss_of(run) < math.inf), key=loss_of, default=None)


def chosen_values(chosen: Mapping[str, Any], tried: Values) -> list[str]:
    """Describe what a sweep has chosen, and whether something better may lie beyond what was tried."""
    return [
        f"{name}={value}{', at the edge of what was tried' if at_the_edge(value, tried[name]) else ''}"
        for name, value in chosen.items()
    ]


def without_a_trial(name: str, seed: int, trials: Sequence[Run]) -> Run:
    """Make the result of a run that was never begun, as all trials of its variant have failed."""
    return Run(name, trials[0].folder, seed, error=f"none of the sweep's trials succeeded: {trials[0].error}")


def told(trials: Mapping[str, Sequence[Run]], values: Values, seed: int) -> dict[str, Any]:
    """Write down what a sweep has found.

    Args:
        trials: Each variant's trials.
        values: What was tried.
        seed: With which seed.

    Returns:
        What `Comparison.sweep` holds.
    """
    reports = [run.report for runs in trials.values() for run in runs if run.report is not None]
    return {
        "values": values,
        "seed": seed,
        "selected": "lowest loss on training examples that the trials were not trained on",
        "examples": reports[0]["heldout_examples"] if reports else None,
        "runs": [
            {
                "name": name,
                "values": run.settings,
                "loss": None if math.isinf(loss_of(run)) else loss_of(run),
                "chosen": run is best_of(runs),
                "error": run.error,
                "folder": run.folder,
                "hash": run.hash,
            }
            for name, runs in trials.items()
            for run in runs
        ],
    }
