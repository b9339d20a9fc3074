"""Claims and calibration in words: for the terminal, and for docs/claims.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zoo.comparison.results.statistics import MOST_SEEDS, Measurements, PairedDifference
from zoo.comparison.results.units import counted, p_value, with_p

from ..page import spread, title
from .calibration import Calibration, Rate
from .contrast import Contrast
from .judging import MISSING, NEITHER, VERDICTS, Cost, Finding, Outcome

RATE_HEADINGS = (
    "Size",
    "Came out, of those decided",
    "Decided, of those recorded",
    "Came out, where sources agree",
    "Probability by chance",
    "Rank correlation of effects",
)

THEME_HEADINGS = ("Theme", *RATE_HEADINGS[:3], "Differences that are decided", "that are not")


def expected(contrast: Contrast) -> str:
    (variant, conditions, score), (baseline, others, against) = contrast.sides
    where = ", ".join([contrast.benchmark, " and ".join(conditions)] if conditions else [contrast.benchmark])
    other = baseline if baseline != variant else f"under {' and '.join(others)}" if others != conditions else ""
    if score != against:
        other = f"{title(against).lower()} {other}".strip()
    else:
        other = f"that of `{other}`" if other == baseline else f"that {other}"
    expectation = "the same as" if contrast.expect == "same" else f"{contrast.expect} than"
    within = f", within {contrast.margin:g}" if contrast.margin else ""
    return f"{where}: {title(score).lower()} of `{variant}` {expectation} {other}{within}"


def numbers(outcome: Outcome) -> str:
    if outcome.verdict == MISSING:
        return ""
    lost, baseline_lost = outcome.lost
    sides = f"{side(outcome.variant, lost)} against {side(outcome.baseline, baseline_lost)}"
    if outcome.difference is None:
        return sides
    edge = f"; undecided, as the best {outcome.edge} is at the edge of what was tried" if outcome.edge else ""
    same = "the same within the margin, " if outcome.verdict == NEITHER else ""
    return f"{sides}: {same}{tested(outcome.difference, outcome.p)}{to_decide(outcome.cost)}{edge}"


def difference(outcome: Outcome) -> str:
    """Write the difference alone, with its p; empty without one."""
    return "" if outcome.difference is None else tested(outcome.difference, outcome.p)


def to_decide(cost: Cost | None) -> str:
    """Write what could have been seen, and what it takes to decide."""
    if cost is None:
        return ""
    hours = "" if cost.hours is None or cost.seeds is None else f", {max(cost.hours, 0.1):.1f} h more"
    seeds = f"more than {MOST_SEEDS} seeds" if cost.seeds is None else counted(cost.seeds, "seed")
    return f"; {cost.seen:.2g} would have been seen; a true difference as measured takes {seeds}{hours}"


def side(sample: Measurements | None, lost: int) -> str:
    """Write a mean with its deviation, and how many runs have none."""
    return ", ".join(filter(None, (spread(sample), f"{lost} lost" if lost else "")))


def tested(difference: PairedDifference, p: float | None) -> str:
    chance = "" if p is None else f", {with_p(p_value(p))}"
    return f"{difference.mean:+.3g}{chance}, {counted(difference.pairs, 'seed')}"


def tally(findings: Sequence[Finding]) -> str:
    """Count verdicts: "holds here: 3; ..."."""
    found = Counter(finding.verdict for finding in findings)
    return "; ".join(f"{word}: {found[word]}" for word in VERDICTS if found[word])


def in_words(rate: Rate) -> str:
    """Write a rate: "9 of 12, 75 % (43 to 95 %)"."""
    if not rate.trials:
        return "none"
    low, high = rate.interval
    share = f"{100 * rate.hits / rate.trials:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"
    return f"{rate.hits} of {rate.trials}, {share}"


def rate_row(calibration: Calibration, condition: str) -> list[str]:
    """Write how often published signs came out at one size; headings are in `RATE_HEADINGS`."""
    chance, correlation = calibration.by_chance(condition), calibration.correlation(condition)
    rates = calibration.rate(condition), calibration.decided(condition), calibration.agreed.rate(condition)
    numbers = "" if chance is None else f"{chance:.2g}", "" if correlation is None else f"{correlation:+.2f}"
    return [condition, *map(in_words, rates), *numbers]


def theme_rows(calibration: Calibration) -> list[list[str]]:
    """Write which themes a size decides, and by how large differences; headings are in `THEME_HEADINGS`."""
    return [
        [
            theme.replace("-", " "),
            *rate_row(found, condition)[:3],
            span(found, condition, True),
            span(found, condition, False),
        ]
        for condition in calibration.conditions
        for theme, found in calibration.by_theme().items()
        if found.decided(condition).trials
    ]


def span(calibration: Calibration, condition: str, decided: bool) -> str:
    """Write the smallest and the largest difference."""
    found = calibration.differences(condition, decided=decided)
    return " to ".join(dict.fromkeys(f"{one:.3f}" for one in (found[:1] + found[-1:])))
