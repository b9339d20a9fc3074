"""How often `--decide` is wrong, and how many runs it takes, by simulation.

`python scripts/bench/deciding.py` draws scores of variants that do not differ, or differ by exactly the margin, counts
families with any false verdict, and writes the tables of docs/comparing.md. It takes a few minutes of one core.
`--table` writes them from what is recorded.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoo.base.files import replace_part, write_file
from zoo.comparison.request.seeds import FEWEST_SEEDS, MOST_SEEDS
from zoo.comparison.results.design import Design, increment, judged, levels
from zoo.comparison.results.distributions import student_within, students_within
from zoo.comparison.results.statistics import ERROR, SAME, UNDECIDED, sign_p

RECORD = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "comparing.md"
VARIANTS = (2, 5, 15, 60)
FAMILIES = 8000
MARGINS = {"errors": 1.0, "runs": 2.0}
"""In standard deviations of a difference: a small one is the harder one to keep apart from."""

OPEN, DIFFERS, ALIKE = 0, 1, 2
Array = NDArray[np.float64]
Words = NDArray[np.int64]
Flags = NDArray[np.bool_]
SIGNS = np.array([[sign_p(wins, losses) for losses in range(MOST_SEEDS + 1)] for wins in range(MOST_SEEDS + 1)])


def normal(luck: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Scores of one spread."""
    return luck.standard_normal(shape)


def unsteady(luck: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The last variant spreads 25 times as much."""
    scores = luck.standard_normal(shape)
    scores[:, -1] *= 25
    return scores


def heavy(luck: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with three degrees of freedom."""
    return luck.standard_t(3, shape)


def tied(luck: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Counted scores; two in five are equal."""
    return np.round(0.7 * luck.standard_normal(shape))


def diverging(luck: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One run in seven has no score."""
    scores = luck.standard_normal(shape)
    scores[luck.random(shape) < 1 / 7] = np.nan
    return scores


DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": normal,
    "one variant 25 times as unsteady": unsteady,
    "heavy tails": heavy,
    "ties": tied,
    "diverging runs": diverging,
}


def decide(scores: Array, margin: float | None, shifts: Array | float = 0.0) -> tuple[Words, Words]:
    """Decide families as `judged` does, all of them together; words, and seeds at the decision.

    *Shape:* scores (families, variants, seeds), the baseline first, and not a number for a run that is lost; true
    differences and the results (families, variants - 1).
    """
    differences = scores[:, 1:] + np.asarray(shifts)[..., None] - scores[:, :1]
    lost, base_lost = np.isnan(scores[:, 1:]), np.isnan(scores[:, :1])
    one_lost = lost ^ base_lost
    families, tests, limit = differences.shape
    words, seeds = np.zeros((families, tests), np.int64), np.full((families, tests), limit)
    for count in range(FEWEST_SEEDS, limit + 1):
        found = looked(differences[..., :count], one_lost[..., :count], (lost & ~base_lost)[..., :count], margin)
        while True:
            shares = ERROR / (np.maximum((words == OPEN).sum(1), 1) if margin is None else np.full(families, tests))
            new = (words == OPEN) * word_of(*found, shares, count, limit)
            words, seeds = words + new, np.where(new > 0, count, seeds)
            if margin is not None or not new.any():
                break
    return words, seeds


def looked(
    differences: Array, one_lost: Flags, own_lost: Flags, margin: float | None
) -> tuple[Array, Array, Array, Array, Array]:
    """P-values of a difference and of sameness, whether they are of signs, and how many differences there are."""
    there = ~np.isnan(differences)
    number = there.sum(-1)
    filled = np.where(there, differences, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = filled.sum(-1) / number
        variance = (np.where(there, differences - mean[..., None], 0.0) ** 2).sum(-1) / (number - 1)
        error_of_mean = np.sqrt(variance / number)
        t, distance = mean / error_of_mean, ((margin or 0.0) - np.abs(mean)) / error_of_mean
    wins = ((filled > 0) & there).sum(-1) + (one_lost & ~own_lost).sum(-1)
    losses = ((filled < 0) & there).sum(-1) + own_lost.sum(-1)
    is_signs = one_lost.any(-1) | (variance < 1e-20) | (number < 2)
    p, same = np.ones(mean.shape), np.ones(mean.shape)
    for count in np.unique(number[~is_signs]):
        at = ~is_signs & (number == count)
        p[at] = 1 - students_within(np.abs(t[at]), int(count) - 1)
        same[at] = (1 - students_within(distance[at], int(count) - 1)) / 2
    p[is_signs] = SIGNS[wins[is_signs], losses[is_signs]]
    flat = is_signs & ~one_lost.any(-1) & (np.abs(mean) < (margin or 0.0))
    same[flat] = 0.5 ** number[flat]
    return p, same, is_signs.astype(float), number.astype(float), (number + one_lost.sum(-1)).astype(float)


def word_of(
    p: Array, same: Array, is_signs: Array, number: Array, informative: Array, shares: Array, count: int, limit: int
) -> Words:
    """Decision of one look."""
    words = np.zeros(p.shape, np.int64)
    for share in np.unique(shares):
        families = shares == share
        for size in range(FEWEST_SEEDS, count + 1):
            step = increment(share, size, limit)
            for signs, (two, one) in enumerate(
                (
                    (levels(share, limit, 2)[size - FEWEST_SEEDS], levels(share, limit, 1)[size - FEWEST_SEEDS]),
                    (step, step),
                )
            ):
                at = families[:, None] & (is_signs == signs) & ((informative if signs else number) == size)
                # A look that has no more data than the one before decides nothing new, and repeats it.
                words[at & (p < two)] = DIFFERS
                words[at & (same < one)] = ALIKE
    return words


def false_share(draw: str, variants: int, margin: float | None, luck: np.random.Generator) -> float:
    """Share of families with a false verdict: of equal variants, and with a margin, where half differ by it."""
    scores = DRAWS[draw](luck, (FAMILIES, variants, MOST_SEEDS))
    shifts = np.zeros((FAMILIES, variants - 1))
    margin = None if margin is None else margin * math.sqrt(2)
    if margin is not None:
        shifts[:, ::2] = margin * np.where(np.arange(0, variants - 1, 2) % 4, 1, -1)
    words, _ = decide(scores, margin, shifts)
    wrong = np.where(shifts == 0, words == DIFFERS, words == ALIKE)
    return float(wrong.any(1).mean())


def same_as_the_library(luck: np.random.Generator) -> None:
    """Compare a few families of every kind with what `zoo compare` would find."""
    for draw in DRAWS.values():
        for margin in (None, 2.0):
            shifts = 2 * luck.standard_normal((20, 4))
            scores = draw(luck, (20, 5, MOST_SEEDS))
            words, _ = decide(scores, margin, shifts)
            scores[:, 1:] += shifts[..., None]
            for family, found in zip(scores, words, strict=True):
                named = {
                    f"v{place}": {seed: None if math.isnan(score) else float(score) for seed, score in enumerate(row)}
                    for place, row in enumerate(family)
                }
                verdicts = [word for _, word in judged(named, "v0", 1, Design(margin, MOST_SEEDS)).values()][1:]
                expected = [OPEN if word == UNDECIDED else ALIKE if word == SAME else DIFFERS for word in verdicts]
                assert expected == found.tolist(), (expected, found)


def runs(variants: int, margin: float | None, luck: np.random.Generator) -> tuple[float, float, int]:
    """The share of right verdicts, the mean seeds of a run, and the seeds of a fixed design that is right as often."""
    families, tests = 12_000 // variants, variants - 1
    shifts = 3 * math.sqrt(2) * luck.standard_normal((families, tests))
    scores = luck.standard_normal((families, variants, 4 * MOST_SEEDS))
    scaled = None if margin is None else margin * math.sqrt(2)
    words, seeds = decide(scores[..., :MOST_SEEDS], scaled, shifts)
    right = is_right(words, shifts, scaled)
    taken = (seeds.sum(1) + seeds.max(1)).mean() / variants
    return right, float(taken), fixed_seeds(scores, shifts, scaled, right)


def fixed_seeds(scores: Array, shifts: Array, margin: float | None, wanted: float) -> int:
    """The seeds of a fixed design, with Holm's correction or with a margin, that is right as often."""
    differences = scores[:, 1:] + shifts[..., None] - scores[:, :1]
    share = ERROR / shifts.shape[1]
    steps = ERROR / np.arange(shifts.shape[1], 0, -1)
    for count in range(FEWEST_SEEDS, scores.shape[-1] + 1):
        none = np.zeros((*shifts.shape, count), bool)
        p, same, *_ = looked(differences[..., :count], none, none, margin)
        below = p < share
        if margin is None:
            ranks = p.argsort(1).argsort(1)
            passed = np.logical_and.accumulate(np.sort(p, axis=1) < steps, axis=1)
            below = np.take_along_axis(passed, ranks, axis=1)
        words = np.where((same < share) & (margin is not None), ALIKE, np.where(below, DIFFERS, OPEN))
        if is_right(words, shifts, margin) >= wanted:
            return count
    return scores.shape[-1]


def is_right(words: Words, shifts: Array, margin: float | None) -> float:
    """The share of right verdicts."""
    alike = np.abs(shifts) < (margin or 0.0)
    return float(((words == DIFFERS) & (shifts != 0) | (words == ALIKE) & alike).mean())


def shrunk_share(variants: int, luck: np.random.Generator) -> float:
    """False verdicts with three seeds, one unsteady variant, and variances shrunk to the median."""
    differences = normal(luck, (FAMILIES, variants - 1, 3))
    differences[:, -1] *= 25
    variance = differences.var(-1, ddof=1)
    t = differences.mean(-1) / np.sqrt((variance + np.median(variance, axis=1, keepdims=True)) / 2 / 3)
    critical = next(x for x in np.arange(1, 100, 0.01) if 1 - student_within(x, 4) < ERROR / (variants - 1))
    return float((np.abs(t) > critical).any(1).mean())


def simulate() -> dict[str, object]:
    luck = np.random.default_rng(0)
    same_as_the_library(luck)
    wrong = {
        f"{draw}{'' if margin is None else ', with a margin'}": [
            round(false_share(draw, variants, margin, luck), 4) for variants in VARIANTS
        ]
        for margin in (None, MARGINS["errors"])
        for draw in DRAWS
    }
    taken = {
        "without a margin" if margin is None else f"margin {margin:g} deviations": [
            [round(value, 3) for value in runs(variants, margin, luck)] for variants in VARIANTS
        ]
        for margin in (None, MARGINS["runs"])
    }
    shrunk = [round(shrunk_share(variants, luck), 3) for variants in VARIANTS[1:]]
    return {"families": FAMILIES, "limit": MOST_SEEDS, "wrong": wrong, "runs": taken, "shrunk": shrunk}


def tables(found: dict[str, object]) -> str:
    """Write what was found as Markdown."""
    wrong, taken = found["wrong"], found["runs"]
    assert isinstance(wrong, dict) and isinstance(taken, dict)
    columns = " | ".join(f"{variants} variants" for variants in VARIANTS)
    rule = "|---|" + "---:|" * len(VARIANTS)
    lines = [f"| families with a false verdict | {columns} |", rule]
    lines += [f"| {name} | {' | '.join(f'{100 * one:.1f} %' for one in row)} |" for name, row in wrong.items()]
    lines += ["", f"| runs, as a share of those of a fixed design that is right as often | {columns} |", rule]
    for name, row in taken.items():
        cells = (
            f"{mean / fixed:.2f} ({100 * right:.0f} % right, {fixed_text(fixed)} seeds fixed)"
            for right, mean, fixed in row
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def fixed_text(seeds: float) -> str:
    """Write the seeds of a fixed design, up to the number that is drawn."""
    return f"more than {seeds:g}" if seeds == 4 * MOST_SEEDS else f"{seeds:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write what is recorded, and draw nothing")
    if not parser.parse_args().table:
        write_file(RECORD, json.dumps(simulate(), indent=1) + "\n")
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    part = "python scripts/bench/deciding.py"
    write_file(PAGE, replace_part(PAGE.read_text(encoding="utf-8"), part, tables(found)))


if __name__ == "__main__":
    main()
