"""A sweep's trials: what they are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .record import Run


def loss_of(run: Run) -> float:
    """Criterion of a trial: the loss on the examples that were set aside, infinite if it failed."""
    loss = math.inf if run.report is None else float(run.report["heldout_loss"])
    return loss if math.isfinite(loss) else math.inf


def without_a_trial(name: str, seed: int, trials: Sequence[Run]) -> Run:
    """Make the result of a run that was never begun, as all trials of its variant have failed."""
    return Run(name, trials[0].folder, seed, error=f"none of the sweep's trials succeeded: {trials[0].error}")
