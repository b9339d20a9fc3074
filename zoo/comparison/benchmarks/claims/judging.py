"""Verdicts on claims, from recorded rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from zoo.base.errors import UnknownNameError
from zoo.comparison.results.metrics import LOSSES
from zoo.comparison.results.statistics import (
    BETTER,
    ERROR,
    WORSE,
    Measurements,
    PairedDifference,
    Pairs,
    compare_all,
    detectable,
    seeds_needed,
    verdict,
)
from zoo.models.parts import deviations_of

from ...request.seeds import FEWEST_SEEDS
from ...results.design import FIXED, Design, Scores, at_look, levels, looks_of, measured, pairs_of
from ..definition import Benchmark, benchmarks
from ..rows import read_rows
from .contrast import Claim, Contrast, Known, Recorded, read_claims

HOLDS = "holds here"
FAILS = "does not hold here"
NEITHER = "no difference here"
UNCLEAR = "inconclusive at this scale"
MISSING = "not recorded yet"
LOSS_KEYS = [metric.key for metric in LOSSES]
VERDICTS = (HOLDS, FAILS, NEITHER, UNCLEAR, MISSING)


@dataclass(frozen=True)
class Cost:
    """Cost of deciding a contrast."""

    seen: float  # The smallest true difference that four of five such comparisons would have shown
    # Seeds with which four of five comparisons decide, where the true difference is the one that was measured; None for
    # more than 1,000
    seeds: int | None
    hours: float | None  # Of training of the seeds that are missing, one run at a time; None where that is not known


@dataclass(frozen=True)
class Outcome:
    """Result of a contrast.

    Attributes:
        contrast: The contrast.
        verdict: One of `VERDICTS`.
        variant: The variant's scores, of the seeds that decided where seeds were added; None where it has none.
        baseline: The baseline's, likewise.
        difference: Variant minus baseline over the seeds that both have; None without any.
        p: Of the test that decides, corrected: that noise makes such a difference; for "no lower" and "no higher", and
            where "same" does not hold, such a distance from the margin; for "same", and for "no difference here", that
            a difference of the margin looks as small. Where seeds were added until a decision, in units in which 0.05
            decides. None where nothing could be tested.
        lost: How many runs of the variant, and of the baseline, failed or diverged.
        cost: Cost of deciding; None where it is decided, or no sizes can be tested.
        edge: Swept arguments with the best value at the edge of what was tried, so that nothing is decided.
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
        outcomes: Result of each of its tests.
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
        Each claim with a verdict, "holds here", "does not hold here", "no difference here", "inconclusive at this
        scale" or "not recorded yet", and with the numbers that it comes from.

    Raises:
        UnknownNameError: When the name is unknown.
    """
    known = benchmarks()
    found = read_claims(known=known)
    if name is not None:
        names = dict.fromkeys(one for claim in found for one in (claim.name, claim.theme, *claim.about))
        UnknownNameError.check(name, valid=names, kind="claim")
        found = [claim for claim in found if name in (claim.name, claim.theme, *claim.about)]
    return judge_claims(found, known)


def claims_about(variant: str) -> list[Finding]:
    """Describe which claims about a variant the recorded benchmarks bear out, if any."""
    known = benchmarks()
    return judge_claims([claim for claim in read_claims(known=known) if variant in claim.about], known)


def judge_claims(found: Sequence[Claim], known: Known) -> list[Finding]:
    recorded = {name: read_rows(known[name].results) for name in {one.benchmark for c in found for one in c.tests}}
    return [judge_claim(claim, known, recorded) for claim in found]


def judge_claim(claim: Claim, known: Known, recorded: Recorded) -> Finding:
    outcomes = judge_rows(claim.tests, known, recorded, timed=True)
    verdicts = {outcome.verdict for outcome in outcomes}
    word = next(word for word in (FAILS, MISSING, UNCLEAR, NEITHER, HOLDS) if word in verdicts)
    names = dict.fromkeys(name for one in claim.tests for (name, *_) in one.sides)
    return Finding(claim, word, outcomes, tuple(dict.fromkeys(one for name in names for one in deviations_of(name))))


def judge_rows(
    contrasts: Sequence[Contrast], known: Known, recorded: Recorded, *, timed: bool = False
) -> list[Outcome]:
    """Judge contrasts that belong together by recorded rows; nothing is decided at the edge of a sweep.

    With `timed`, undecided ones have a cost in hours.
    """
    evidence, edges = [], []
    for contrast in contrasts:
        benchmark, rows = known[contrast.benchmark], recorded[contrast.benchmark]
        seconds = contrast.seconds(benchmark, rows) if timed else None
        evidence.append(Evidence(contrast, *contrast.scores(benchmark, rows), design_of(contrast, benchmark), seconds))
        edges.append(contrast.edges(benchmark, rows))
    return [
        replace(outcome, verdict=UNCLEAR, edge=edge) if edge and outcome.verdict not in (UNCLEAR, MISSING) else outcome
        for outcome, edge in zip(judge_contrasts(evidence), edges, strict=True)
    ]


def design_of(contrast: Contrast, benchmark: Benchmark) -> Design:
    """How a contrast is decided: as verdicts of its benchmark are; a margin is one of the score that decides there."""
    return benchmark.design if contrast.score == benchmark.score else replace(benchmark.design, margin=None)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The scores of both sides of a contrast, and how they decide it."""

    contrast: Contrast
    own: Scores
    base: Scores
    design: Design = FIXED
    seconds: float | None = None  # Of training with one more seed

    @cached_property
    def sides(self) -> Sequence[tuple[Scores, Scores]]:
        """The scores at each look: of three seeds, of four, and so on to the limit; without one, of all seeds alone."""
        limit = self.design.limit
        looks = [] if limit is None else looks_of(self.own, self.base)[: limit - FEWEST_SEEDS + 1]
        return looks or [(self.own, self.base)]

    @cached_property
    def looks(self) -> Sequence[Pairs]:
        """The pairs at each look; empty where none has any."""
        looks = [pairs_of(own, base, self.contrast.direction) for own, base in self.sides]
        return looks if looks[-1].differences else []

    @property
    def moved(self) -> Sequence[Pairs]:
        """The looks, moved by the claim's margin: towards what is expected, for "same" towards no difference."""
        if not self.contrast.margin:
            return self.looks
        moved = []
        for pairs in self.looks:
            shift = self.contrast.direction * self.contrast.margin
            if self.contrast.expect == "same":
                shift = -math.copysign(shift, math.fsum(pairs.differences))
            moved.append(replace(pairs, differences=[one + shift for one in pairs.differences]))
        return moved

    @property
    def margin(self) -> float | None:
        return self.contrast.margin or self.design.margin

    def outcome(self, look: int = -1) -> Outcome:
        """The scores of both sides at a look, by default the last one, before anything is decided."""
        own, base = self.sides[look]
        lost, baseline_lost = (sum(value is None for value in side.values()) for side in (own, base))
        word = UNCLEAR if set(own) & set(base) else MISSING
        return Outcome(self.contrast, word, measured(own.values()), measured(base.values()), lost=(lost, baseline_lost))


def judge_contrasts(evidence: Sequence[Evidence]) -> list[Outcome]:
    """Judge contrasts that belong together."""
    tested = [one for one in evidence if one.looks]
    share = ERROR / max(1, len(tested))
    # Holm's correction over contrasts with all seeds at once; each of the others has an equal share.
    at_once = [one for one in tested if one.design.limit is None]
    others = len(tested) - len(at_once)
    plain = dict(zip(at_once, compare_all([one.looks[-1] for one in at_once], others=others), strict=True))
    # Whether something is no lower than by a margin is a test of differences that are moved up by the margin.
    away = dict(zip(at_once, compare_all([one.moved[-1] for one in at_once], others=others), strict=True))
    outcomes = []
    for one in evidence:
        outcome, moved = one.outcome(), away.get(one)
        if moved is not None:
            found = plain[one] if one.margin is None else plain[one].within(one.margin, share)
            outcome = decide(one, -1, found, moved)
        else:  # after the fewest seeds that can; the error of all looks together is that of one test
            for look, (pairs, shifted) in enumerate(zip(one.looks, one.moved, strict=True)):
                if not pairs.differences:
                    continue
                found, moved = (
                    at_look(each, share, look, one.design.limit or 0, margin)
                    for each, margin in ((pairs, one.margin), (shifted, None))
                )
                outcome = decide(one, look, found, moved)
                if outcome.verdict != UNCLEAR:
                    break
        if outcome.verdict == UNCLEAR and moved is not None:
            outcome = replace(outcome, cost=cost_of(one, moved, len(tested)))
        outcomes.append(outcome)
    return outcomes


def decide(evidence: Evidence, look: int, plain: PairedDifference, moved: PairedDifference) -> Outcome:
    """Decide at a look whether what is expected came out. A difference that shows decides before a margin does."""
    contrast = evidence.contrast
    word, p = UNCLEAR, plain.sameness if contrast.expect == "same" else moved.adjusted
    if contrast.expect != "same":
        words: Mapping[str, str] = {BETTER: HOLDS, WORSE: FAILS}
        word = words.get(verdict(moved), UNCLEAR)
    elif plain.lost and verdict(plain) in (BETTER, WORSE):
        word, p = FAILS, plain.adjusted
    elif not plain.lost and abs(plain.mean) > contrast.margin and verdict(moved) in (BETTER, WORSE):
        word, p = FAILS, moved.adjusted
    elif (
        contrast.score.partition("@")[0] in LOSS_KEYS
        and not (plain.lost or any(evidence.looks[look].differences))
        and plain.p is not None
    ):
        # Scores that are counted tie by chance; losses that agree to the last bit come of the same computation.
        word, p = HOLDS, None
    if word == UNCLEAR and plain.is_same and plain.deviation:
        word, p = HOLDS if contrast.margin else NEITHER, plain.sameness
    return replace(evidence.outcome(look), verdict=word, difference=plain, p=p)


def cost_of(evidence: Evidence, moved: PairedDifference, tests: int) -> Cost | None:
    """Cost of deciding one of `tests` contrasts if the true difference is the measured one, `moved` by the margin."""
    contrast, design = evidence.contrast, evidence.design
    least = detectable(moved)
    if least is None or not moved.deviation:
        return None
    away = abs(moved.mean)
    if not contrast.margin:
        away = max(away, (design.margin or 0.0) - away)
    if design.limit is not None:
        tests = round(ERROR / levels(ERROR / tests, design.limit, 2)[-1])
    seeds = seeds_needed(moved.deviation, away, tests) if away else None
    if seeds is not None:
        seeds = max(seeds, moved.pairs + 1)
    hours = None if seeds is None or evidence.seconds is None else (seeds - moved.pairs) * evidence.seconds / 3600
    return Cost(least, seeds, hours)
