"""What recorded rows say of claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from zoo.base.errors import UnknownNameError
from zoo.comparison.results.metrics import LOSSES
from zoo.comparison.results.statistics import (
    BETTER,
    LEVEL,
    WORSE,
    Measurements,
    PairedDifference,
    Pairs,
    compare_all,
    verdict,
)
from zoo.models.parts import deviations_of

from ...results.design import Scores, pairs_of
from ...results.statistics import detectable, equivalence_p, seeds_needed
from ..definition import Benchmark, benchmarks
from ..rows import Row, read_rows
from .contrast import Claim, Contrast, read_claims

HOLDS = "holds here"
FAILS = "does not hold here"
UNCLEAR = "cannot be told at this scale"
MISSING = "not recorded yet"
VERDICTS = (HOLDS, FAILS, UNCLEAR, MISSING)


@dataclass(frozen=True)
class Cost:
    """What it would take to decide a contrast."""

    seen: float  # The smallest true difference that four of five such comparisons would have shown
    # Seeds with which four of five comparisons decide, where the true difference is the one that was measured; None for
    # more than 1,000
    seeds: int | None
    hours: float | None  # Of training of the seeds that are missing, one run at a time; None where that is not known


@dataclass(frozen=True)
class Outcome:
    """What came out of a contrast.

    Attributes:
        contrast: The contrast.
        verdict: One of `VERDICTS`.
        variant: The variant's scores; None where it has none.
        baseline: The baseline's scores; None where it has none.
        difference: Variant minus baseline over the seeds that both have; None where there is none.
        p: Of the test that decides, corrected: that noise makes such a difference; for "no lower" and "no higher", such
            a distance from the margin; for "same", that a difference of the margin looks as small. None where nothing
            could be tested.
        lost: How many runs of the variant, and of the baseline, failed or diverged.
        cost: What it would take to decide; None where it is decided, or no sizes can be tested.
        edge: What was swept and has its best value at the edge of what was tried, so that nothing is decided.
    """

    contrast: Contrast
    verdict: str
    variant: Measurements | None = None
    baseline: Measurements | None = None
    difference: PairedDifference | None = None
    p: float | None = None
    lost: tuple[int, int] = (0, 0)
    cost: Cost | None = None
    edge: str = ""

    def to_dict(self) -> dict[str, Any]:
        of_both = {"variant": self.variant, "baseline": self.baseline}
        return {**asdict(self), **{name: sample and sample.to_dict() for name, sample in of_both.items()}}


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim, and its numbers.

    Attributes:
        claim: The claim.
        verdict: One of `VERDICTS`.
        outcomes: What came out of each of its tests.
        deviations: How the variants that it is about differ from their papers.
    """

    claim: Claim
    verdict: str
    outcomes: Sequence[Outcome]
    deviations: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcomes": [outcome.to_dict() for outcome in self.outcomes]}


def claims(name: str | None = None) -> list[Finding]:
    """Describe which claims of papers the recorded benchmarks bear out.

    Args:
        name: A claim's name, a theme, or what claims are about: "pre-norm", "norm=dyt"; None for all claims.

    Returns:
        Each claim with a verdict, "holds here", "does not hold here", "cannot be told at this scale" or "not recorded
        yet", and with the numbers that it comes from.

    Raises:
        UnknownNameError: When there is nothing of this name.
    """
    known = benchmarks()
    found = read_claims(known=known)
    if name is not None:
        names = dict.fromkeys(one for claim in found for one in (claim.name, claim.theme, *claim.about))
        if name not in names:
            raise UnknownNameError(name, names, kind="claim")
        found = [claim for claim in found if name in (claim.name, claim.theme, *claim.about)]
    return judge_claims(found, known)


def claims_about(variant: str) -> list[Finding]:
    """Describe which claims about a variant the recorded benchmarks bear out; none where there are none."""
    known = benchmarks()
    return judge_claims([claim for claim in read_claims(known=known) if variant in claim.about], known)


def judge_claims(found: Sequence[Claim], known: Mapping[str, Benchmark]) -> list[Finding]:
    """Judge claims by what is recorded."""
    recorded = {name: read_rows(known[name].results) for name in {one.benchmark for c in found for one in c.tests}}
    return [judge_claim(claim, known, recorded) for claim in found]


def judge_claim(claim: Claim, known: Mapping[str, Benchmark], recorded: Mapping[str, Sequence[Row]]) -> Finding:
    sides = [one.scores(known[one.benchmark], recorded[one.benchmark]) for one in claim.tests]
    seconds = [one.seconds(known[one.benchmark], recorded[one.benchmark]) for one in claim.tests]
    outcomes = [
        without_edges(outcome, known[outcome.contrast.benchmark], recorded[outcome.contrast.benchmark])
        for outcome in judge_contrasts(claim.tests, sides, seconds)
    ]
    verdicts = {outcome.verdict for outcome in outcomes}
    word = next(word for word in (FAILS, MISSING, UNCLEAR, HOLDS) if word in verdicts)
    names = dict.fromkeys(name for one in claim.tests for (name, *_) in one.sides)
    return Finding(claim, word, outcomes, tuple(dict.fromkeys(one for name in names for one in deviations_of(name))))


def without_edges(outcome: Outcome, benchmark: Benchmark, rows: Sequence[Row]) -> Outcome:
    """Leave an outcome undecided where the best value of a sweep is at the edge of what was tried."""
    if outcome.verdict not in (HOLDS, FAILS):
        return outcome
    found = outcome.contrast.edges(benchmark, rows)
    return replace(outcome, verdict=UNCLEAR, edge=found) if found else outcome


def judge_contrasts(
    contrasts: Sequence[Contrast], sides: Sequence[tuple[Scores, Scores]], seconds: Sequence[float] | None = None
) -> list[Outcome]:
    """Judge contrasts that belong together; `seconds` is how long one more seed trains, for each."""
    pairs = [pairs_of(own, base, one.direction) for one, (own, base) in zip(contrasts, sides, strict=True)]
    tested = [number for number, one in enumerate(pairs) if one.differences]
    differences = dict(zip(tested, compare_all([pairs[number] for number in tested]), strict=True))
    # Whether something is no lower than by a margin is a test of differences that are moved up by the margin.
    moved = [moved_by(contrasts[number], pairs[number]) for number in tested]
    decided = dict(zip(tested, compare_all(moved), strict=True))
    outcomes = []
    for number, (contrast, (own, base)) in enumerate(zip(contrasts, sides, strict=True)):
        word, p, cost = MISSING if not set(own) & set(base) else UNCLEAR, None, None
        if number in tested:
            word, p = decide(contrast, pairs[number], differences[number], decided[number], len(tested))
            if word == UNCLEAR:
                cost = cost_of(contrast, decided[number], len(tested), None if seconds is None else seconds[number])
        outcomes.append(
            Outcome(
                contrast,
                word,
                measurements(own),
                measurements(base),
                differences.get(number),
                p,
                (sum(value is None for value in own.values()), sum(value is None for value in base.values())),
                cost,
            )
        )
    return outcomes


def moved_by(contrast: Contrast, pairs: Pairs) -> Pairs:
    """Move differences by the margin of "no lower" and "no higher", towards what is expected."""
    if contrast.expect not in ("no lower", "no higher"):
        return pairs
    return replace(pairs, differences=[one + contrast.direction * contrast.margin for one in pairs.differences])


def decide(
    contrast: Contrast, pairs: Pairs, plain: PairedDifference, moved: PairedDifference, tests: int
) -> tuple[str, float | None]:
    """Whether what is expected came out."""
    if contrast.expect != "same":
        words: Mapping[str, str] = {BETTER: HOLDS, WORSE: FAILS}
        return words.get(verdict(moved), UNCLEAR), moved.adjusted
    lost = pairs.lost or pairs.baseline_lost
    if verdict(plain) in (BETTER, WORSE) and (lost or abs(plain.mean) > contrast.margin):
        return FAILS, plain.adjusted
    if lost or plain.p is None:
        return UNCLEAR, None
    # Scores that are counted tie by chance; losses that agree to the last bit come of the same computation.
    if is_loss(contrast) and not any(pairs.differences):
        return HOLDS, None
    if not plain.deviation:
        return UNCLEAR, 1.0
    p = min(1.0, tests * equivalence_p(plain, contrast.margin))
    return HOLDS if p < 1 - LEVEL else UNCLEAR, p


def cost_of(contrast: Contrast, moved: PairedDifference, tests: int, seconds: float | None) -> Cost | None:
    """Cost of deciding a contrast if the true difference is the measured one.

    Args:
        moved: The differences, moved by the margin of "no lower" and "no higher".
        tests: Number of contrasts in the correction.
    """
    least = detectable(moved)
    if least is None or not moved.deviation:
        return None
    away = abs(moved.mean)
    if contrast.expect == "same" and away < contrast.margin:
        away = contrast.margin - away
    seeds = seeds_needed(moved.deviation, away, tests) if away else None
    more = None if seeds is None or seconds is None else max(0, seeds - moved.pairs) * seconds / 3600
    return Cost(least, seeds, more)


def is_loss(contrast: Contrast) -> bool:
    """Whether a contrast is one of losses, named by their columns."""
    return contrast.score.partition("@")[0] in {metric.key for metric in LOSSES}


def measurements(scores: Scores) -> Measurements | None:
    """Summarise what a side has."""
    values = [value for value in scores.values() if value is not None]
    return Measurements.of(values) if values else None
