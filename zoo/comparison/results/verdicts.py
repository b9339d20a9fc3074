"""Verdicts on variants and a baseline, by a score per seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..request.seeds import FEWEST_SEEDS
from .design import FIXED, Design, decide_in_turn
from .statistics import UNKNOWN, PairedDifference, Pairs, compare_all, verdict

BASELINE = "baseline"
FAILED = "failed"

Scores = Mapping[int, float | None]
"""A score by seed; None where a run failed or diverged."""


def judged(
    scores: Mapping[str, Scores], baseline: str, better: int, design: Design = FIXED
) -> dict[str, tuple[PairedDifference | None, str]]:
    """Test every variant against the baseline, corrected for the number of variants."""
    base = scores.get(baseline, {})
    paired = {name: pairs_of(own, base, better) for name, own in scores.items() if name != baseline}
    tested = {name: pairs for name, pairs in paired.items() if pairs.differences}
    if design.limit is None:
        differences = dict(zip(tested, compare_all(list(tested.values()), design.margin), strict=True))
    else:
        histories = {name: history_of(scores[name], base, better) for name in tested}
        looked = decide_in_turn(histories, design.limit, design.margin)
        differences = {name: looked.get(name) or PairedDifference.of(pairs) for name, pairs in tested.items()}
    words = {name: verdict(difference, design.otherwise) for name, difference in differences.items()}
    words[baseline] = BASELINE
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


def history_of(own: Scores, baseline: Scores, better: int) -> Sequence[Pairs]:
    """The pairs with the first three seeds that have a number, with the first four, and so on."""
    seeds = [seed for seed in own if seed in baseline and (own[seed], baseline[seed]) != (None, None)]
    return [
        pairs_of({seed: own[seed] for seed in seeds[:count]}, baseline, better)
        for count in range(FEWEST_SEEDS, len(seeds) + 1)
    ]


def finite(value: float | None) -> float | None:
    """A number, None where there is none or it is not finite: a diverged run has no score."""
    return value if value is not None and math.isfinite(value) else None
