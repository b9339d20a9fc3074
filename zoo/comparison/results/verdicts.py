"""What may be said of variants beside a baseline, by a score that each has once a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .statistics import UNKNOWN, PairedDifference, Pairs, compare_all, verdict

BASELINE = "baseline"
FAILED = "failed"

Scores = Mapping[int, float | None]
"""A score by seed; None where a run failed or diverged."""


def judged(scores: Mapping[str, Scores], baseline: str, better: int) -> dict[str, tuple[PairedDifference | None, str]]:
    """Test every variant against the baseline, corrected for the number of variants."""
    base = scores.get(baseline, {})
    paired = {name: pairs_of(own, base, better) for name, own in scores.items() if name != baseline}
    tested = {name: pairs for name, pairs in paired.items() if pairs.differences}
    differences = dict(zip(tested, compare_all(list(tested.values())), strict=True))
    words = {name: verdict(difference) for name, difference in differences.items()} | {baseline: BASELINE}
    return {name: (differences.get(name), words.get(name, UNKNOWN)) for name in scores}


def pairs_of(own: Scores, baseline: Scores, better: int) -> Pairs:
    """Subtract the baseline's scores seed by seed; a run without a number is lost."""
    both = [(score, baseline[seed]) for seed, score in own.items() if seed in baseline]
    return Pairs(
        differences=[mine - other for mine, other in both if mine is not None and other is not None],
        lost=sum(mine is None and other is not None for mine, other in both),
        baseline_lost=sum(mine is not None and other is None for mine, other in both),
        better=better,
    )


def finite(value: float | None) -> float | None:
    """A number, None where there is none or it is not finite: whoever has diverged has no score."""
    return value if value is not None and math.isfinite(value) else None
