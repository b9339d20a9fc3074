"""Verdicts on claims, from recorded rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    verdict,
)
from zoo.models.parts import deviations_of

from ...request.seeds import FEWEST_SEEDS
from ...results.design import FIXED, Design, Scores, at_look, history_of, levels, measured, pairs_of
from ...results.statistics import detectable, seeds_needed
from ..definition import Benchmark, benchmarks
from ..rows import Row, read_rows
from .contrast import Claim, Contrast, read_claims

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
        variant: The variant's scores; None where it has none.
        baseline: The baseline's scores; None where it has none.
        difference: Variant minus baseline over the seeds that both have; None without any.
        p: Of the test that decides, corrected: that noise makes such a difference; for "no lower" and "no higher", such
            a distance from the margin; for "same", and for "no difference here", that a difference of the margin looks
            as small. Where seeds were added until a decision, in units in which 0.05 decides. None where nothing could
            be tested.
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
        if name not in names:
            raise UnknownNameError(name, names, kind="claim")
        found = [claim for claim in found if name in (claim.name, claim.theme, *claim.about)]
    return judge_claims(found, known)


def claims_about(variant: str) -> list[Finding]:
    """Describe which claims about a variant the recorded benchmarks bear out, if any."""
    known = benchmarks()
    return judge_claims([claim for claim in read_claims(known=known) if variant in claim.about], known)


def judge_claims(found: Sequence[Claim], known: Mapping[str, Benchmark]) -> list[Finding]:
    recorded = {name: read_rows(known[name].results) for name in {one.benchmark for c in found for one in c.tests}}
    return [judge_claim(claim, known, recorded) for claim in found]


def judge_claim(claim: Claim, known: Mapping[str, Benchmark], recorded: Mapping[str, Sequence[Row]]) -> Finding:
    sides = [one.scores(known[one.benchmark], recorded[one.benchmark]) for one in claim.tests]
    seconds = [one.seconds(known[one.benchmark], recorded[one.benchmark]) for one in claim.tests]
    designs = [design_of(one, known[one.benchmark]) for one in claim.tests]
    outcomes = [
        without_edges(outcome, known[outcome.contrast.benchmark], recorded[outcome.contrast.benchmark])
        for outcome in judge_contrasts(claim.tests, sides, seconds, designs)
    ]
    verdicts = {outcome.verdict for outcome in outcomes}
    word = next(word for word in (FAILS, MISSING, UNCLEAR, NEITHER, HOLDS) if word in verdicts)
    names = dict.fromkeys(name for one in claim.tests for (name, *_) in one.sides)
    return Finding(claim, word, outcomes, tuple(dict.fromkeys(one for name in names for one in deviations_of(name))))


def without_edges(outcome: Outcome, benchmark: Benchmark, rows: Sequence[Row]) -> Outcome:
    """Leave an outcome undecided where the best value of a sweep is at the edge of what was tried."""
    if outcome.verdict in (UNCLEAR, MISSING):
        return outcome
    found = outcome.contrast.edges(benchmark, rows)
    return replace(outcome, verdict=UNCLEAR, edge=found) if found else outcome


def design_of(contrast: Contrast, benchmark: Benchmark) -> Design:
    """How a contrast is decided: as verdicts of its benchmark are; a margin is one of the score that decides there."""
    return benchmark.design if contrast.score == benchmark.score else replace(benchmark.design, margin=None)


def judge_contrasts(
    contrasts: Sequence[Contrast],
    sides: Sequence[tuple[Scores, Scores]],
    seconds: Sequence[float] | None = None,
    designs: Sequence[Design] | None = None,
) -> list[Outcome]:
    """Judge contrasts that belong together, of the scores on both `sides`; `seconds` are those of one more seed."""
    designs = [FIXED] * len(contrasts) if designs is None else designs
    histories = [
        history(contrast, own, base, design)
        for contrast, (own, base), design in zip(contrasts, sides, designs, strict=True)
    ]
    tested = [number for number, looks in enumerate(histories) if looks]
    # Holm's correction over contrasts with all seeds at once; each of the others has an equal share.
    at_once = [number for number in tested if designs[number].limit is None]
    plain = dict(zip(at_once, compare_all([histories[number][-1] for number in at_once]), strict=True))
    # Whether something is no lower than by a margin is a test of differences that are moved up by the margin.
    moved = [moved_by(contrasts[number], histories[number][-1]) for number in at_once]
    away = dict(zip(at_once, compare_all(moved), strict=True))
    outcomes = []
    for number, (contrast, (own, base)) in enumerate(zip(contrasts, sides, strict=True)):
        decision = Decision(MISSING if not set(own) & set(base) else UNCLEAR)
        if number in at_once:
            margin = margin_of(contrast, designs[number])
            found = plain[number] if margin is None else plain[number].within(margin, ERROR / len(tested))
            decision = decide(contrast, histories[number][-1], found, away[number])
        elif number in tested:
            decision = decide_by_look(contrast, histories[number], designs[number], len(tested))
        cost = None
        if decision.verdict == UNCLEAR and decision.moved is not None:
            one_more = None if seconds is None else seconds[number]
            cost = cost_of(contrast, decision.moved, designs[number], len(tested), one_more)
        outcomes.append(
            Outcome(
                contrast,
                decision.verdict,
                measured(own.values()),
                measured(base.values()),
                decision.plain,
                decision.p,
                (sum(value is None for value in own.values()), sum(value is None for value in base.values())),
                cost,
            )
        )
    return outcomes


@dataclass(frozen=True)
class Decision:
    """A verdict, the differences as they were when it fell, plain and moved by the margin, and its p-value."""

    verdict: str
    plain: PairedDifference | None = None
    moved: PairedDifference | None = None
    p: float | None = None


def history(contrast: Contrast, own: Scores, base: Scores, design: Design) -> Sequence[Pairs]:
    """The pairs at each look: of three seeds, of four, and so on to the limit; without one, of all seeds alone."""
    looks = [pairs_of(own, base, contrast.direction)]
    if design.limit is not None:
        looks = [*history_of(own, base, contrast.direction)[: design.limit - FEWEST_SEEDS + 1]] or looks
    return [pairs for pairs in looks if pairs.differences]


def decide_by_look(contrast: Contrast, looks: Sequence[Pairs], design: Design, tests: int) -> Decision:
    """Decide after the fewest seeds that can; the error of all looks together is that of one test."""
    share, limit = ERROR / tests, design.limit or 0
    decision = Decision(UNCLEAR)
    for look, pairs in enumerate(looks):
        plain = at_look(pairs, share, look, limit, margin_of(contrast, design))
        moved = at_look(moved_by(contrast, pairs), share, look, limit, None)
        decision = decide(contrast, pairs, plain, moved)
        if decision.verdict != UNCLEAR:
            return decision
    return decision


def moved_by(contrast: Contrast, pairs: Pairs) -> Pairs:
    """Move differences by the margin of "no lower" and "no higher", towards what is expected."""
    if contrast.expect not in ("no lower", "no higher"):
        return pairs
    return replace(pairs, differences=[one + contrast.direction * contrast.margin for one in pairs.differences])


def margin_of(contrast: Contrast, design: Design) -> float | None:
    return contrast.margin or design.margin


def decide(contrast: Contrast, pairs: Pairs, plain: PairedDifference, moved: PairedDifference) -> Decision:
    """Decide whether what is expected came out. A difference that shows decides before a margin does."""
    word, p = UNCLEAR, plain.sameness if contrast.expect == "same" else moved.adjusted
    if contrast.expect != "same":
        words: Mapping[str, str] = {BETTER: HOLDS, WORSE: FAILS}
        word = words.get(verdict(moved), UNCLEAR)
    elif verdict(plain) in (BETTER, WORSE) and (plain.lost or abs(plain.mean) > contrast.margin):
        word, p = FAILS, plain.adjusted
    elif (
        contrast.score.partition("@")[0] in LOSS_KEYS
        and not (plain.lost or any(pairs.differences))
        and plain.p is not None
    ):
        # Scores that are counted tie by chance; losses that agree to the last bit come of the same computation.
        word, p = HOLDS, None
    if word == UNCLEAR and plain.is_same and plain.deviation:
        word, p = HOLDS if contrast.margin else NEITHER, plain.sameness
    return Decision(word, plain, moved, p)


def cost_of(
    contrast: Contrast, moved: PairedDifference, design: Design, tests: int, seconds: float | None
) -> Cost | None:
    """Cost of deciding one of `tests` contrasts if the true difference is the measured one, `moved` by the margin."""
    least = detectable(moved)
    if least is None or not moved.deviation:
        return None
    away = abs(moved.mean)
    if contrast.expect == "same" and away < contrast.margin:
        away = contrast.margin - away
    elif not contrast.margin:
        away = max(away, (design.margin or 0.0) - away)
    if design.limit is not None:
        tests = round(ERROR / levels(ERROR / tests, design.limit, 2)[-1])
    seeds = seeds_needed(moved.deviation, away, tests) if away else None
    if seeds is not None:
        seeds = max(seeds, moved.pairs + 1)
    more = None if seeds is None or seconds is None else max(0, seeds - moved.pairs) * seconds / 3600
    return Cost(least, seeds, more)
