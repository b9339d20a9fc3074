"""Properties of verdicts on claims: ties, single seeds and lost runs prove nothing, and opposites never both hold."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from benchmarks.made_rows import made_rows
from hypothesis import given
from hypothesis import strategies as st

from zoo.comparison.benchmarks import find_benchmark
from zoo.comparison.benchmarks.claims import Contrast
from zoo.comparison.benchmarks.claims.calibration import (
    Calibration,
    Rate,
    Sign,
    binomial_interval,
    rank_correlation,
    try_sign,
)
from zoo.comparison.benchmarks.claims.judging import FAILS, HOLDS, MISSING, NEITHER, UNCLEAR, Evidence, judge_contrasts
from zoo.comparison.results.design import Design, Scores
from zoo.comparison.results.statistics import paired_p

EXPECTATIONS = ("higher", "lower", "same", "no higher", "no lower")
OPPOSITE = {"higher": "lower", "lower": "higher", "no higher": "no lower", "no lower": "no higher", "same": "same"}

numbers = st.floats(-100, 100).map(lambda value: round(value, 3))
spread_out = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=7)


def verdict(expect: str, own: Scores, base: Scores, margin: float = 0.5, score: str = "accuracy") -> str:
    """The verdict of one comparison."""
    needs_margin = expect in ("same", "no higher", "no lower")
    contrast = Contrast("b", "v", expect, "w", score=score, margin=margin if needs_margin else 0.0)
    return judge_contrasts([Evidence(contrast, own, base)])[0].verdict


def by_seed(values: list[float]) -> dict[int, float | None]:
    """Scores of the seeds 0, 1, 2, ..."""
    return dict(enumerate(values))


@given(spread_out, st.sampled_from(EXPECTATIONS))
def test_turning_all_signs_turns_the_claim(pairs: list[tuple[float, float]], expect: str) -> None:
    own, base = map(list, zip(*pairs, strict=True))
    turned = [-value for value in own], [-value for value in base]
    assert verdict(expect, by_seed(own), by_seed(base)) == verdict(OPPOSITE[expect], *map(by_seed, turned))


@given(spread_out)
def test_of_two_opposites_one_fails_where_the_other_holds(pairs: list[tuple[float, float]]) -> None:
    own, base = (by_seed(list(side)) for side in zip(*pairs, strict=True))
    higher, lower = verdict("higher", own, base), verdict("lower", own, base)
    assert (higher, lower) in {(HOLDS, FAILS), (FAILS, HOLDS), (UNCLEAR, UNCLEAR)}
    if higher == HOLDS:
        assert verdict("no lower", own, base) == HOLDS


@given(spread_out, st.floats(0.01, 50))
def test_what_is_the_same_lies_within_the_margin(pairs: list[tuple[float, float]], margin: float) -> None:
    own, base = (by_seed(list(side)) for side in zip(*pairs, strict=True))
    mean = math.fsum(mine - other for mine, other in pairs) / len(pairs)
    found = verdict("same", own, base, margin)
    assert found != HOLDS or abs(mean) < margin
    assert found != FAILS or abs(mean) > margin


@given(numbers, numbers, st.sampled_from(EXPECTATIONS))
def test_one_seed_tells_nothing(own: float, base: float, expect: str) -> None:
    if expect == "same" and own == base:
        base += 1
    assert verdict(expect, {0: own}, {0: base}) == UNCLEAR


@given(numbers, st.integers(3, 9), st.sampled_from(EXPECTATIONS))
def test_ties_of_counted_scores_show_no_difference(value: float, seeds: int, expect: str) -> None:
    tied = by_seed([value] * seeds)
    assert verdict("higher", tied, tied) == verdict("lower", tied, tied) == verdict("same", tied, tied) == UNCLEAR
    assert verdict("same", tied, tied, score="heldout_loss@2x") == HOLDS


@given(st.lists(numbers, min_size=3, max_size=5), st.data(), st.sampled_from(EXPECTATIONS))
def test_lost_runs_are_no_evidence_for_a_claim(base: list[float], data: st.DataObject, expect: str) -> None:
    ahead = {"lower": -1000.0, "no higher": -1000.0, "same": 0.0}.get(expect, 1000.0)
    own = by_seed([value + ahead for value in base])
    lost = data.draw(st.sets(st.sampled_from(sorted(own)), min_size=1))
    assert verdict(expect, own | dict.fromkeys(lost), by_seed(base)) != HOLDS
    assert verdict(expect, dict.fromkeys(own), by_seed(base)) in (UNCLEAR, FAILS)


@pytest.mark.parametrize(("own", "base"), [({}, {0: 1.0}), ({0: 1.0}, {}), ({0: 1.0}, {1: 1.0})])
def test_sides_that_share_no_seed_are_not_recorded(own: Scores, base: Scores) -> None:
    assert all(verdict(expect, own, base) == MISSING for expect in EXPECTATIONS)


def test_more_comparisons_need_stronger_evidence() -> None:
    own, base = by_seed([1.0, 1.4, 1.2]), by_seed([0.0, 0.0, 0.0])
    contrast = Contrast("b", "v", "higher", "w", score="accuracy")
    strong, weak = (Evidence(contrast, side, base) for side in (own, by_seed([0.2, 1.0, 0.6])))
    assert judge_contrasts([strong])[0].verdict == HOLDS
    assert judge_contrasts([strong, *[weak] * 7])[0].verdict == UNCLEAR


def test_more_comparisons_need_stronger_evidence_that_scores_are_the_same() -> None:
    own, base = by_seed([1.1, 0.9, 1.05]), by_seed([1.0, 1.0, 1.0])
    evidence = Evidence(Contrast("b", "v", "same", "w", score="accuracy", margin=0.21), own, base)
    assert judge_contrasts([evidence])[0].verdict == HOLDS
    assert judge_contrasts([evidence] * 3)[0].verdict == UNCLEAR


def test_what_is_beyond_the_margin_by_chance_is_not_another() -> None:
    own, base = by_seed([0.021, 0.024, 0.027, 0.018, 0.022]), by_seed([0.0] * 5)
    assert verdict("same", own, base, 0.02) == UNCLEAR, "0.0224 on average, surely above 0, and perhaps within 0.02"
    assert verdict("same", own, base, 0.015) == FAILS and verdict("higher", own, base) == HOLDS


def test_all_comparisons_of_a_claim_share_its_error_however_they_are_decided() -> None:
    contrast = Contrast("b", "v", "higher", "w", score="accuracy")
    at_once = Evidence(contrast, by_seed([1.0, 1.6, 1.3]), by_seed([0.0] * 3))
    by_look = Evidence(contrast, by_seed([0.2, -0.3, 0.1]), by_seed([0.0] * 3), BY_LOOK)
    assert [one.verdict for one in judge_contrasts([at_once])] == [HOLDS]
    alone, both = judge_contrasts([at_once])[0].p, judge_contrasts([at_once, by_look])[0].p
    assert alone is not None and both == pytest.approx(2 * alone)


def test_a_lost_run_is_not_the_same() -> None:
    own, base = by_seed([1.001, 0.999, 1.0, 1.0]), by_seed([1.0, 1.0, 1.0, 1.0])
    assert verdict("same", own, base) == HOLDS
    assert verdict("same", own | {3: None}, base) == UNCLEAR == verdict("same", own, base | {3: None})


def test_a_margin_decides_what_is_no_worse() -> None:
    own, base = by_seed([1.010, 1.011, 1.009]), by_seed([1.0, 1.0, 1.0])
    assert verdict("no higher", own, base, 0.02) == HOLDS == verdict("same", own, base, 0.02)
    assert verdict("no higher", own, base, 0.005) == FAILS == verdict("same", own, base, 0.005)
    assert verdict("no lower", own, base, 0.005) == HOLDS


BY_LOOK = Design(margin=0.5, limit=6)


def verdict_by_look(expect: str, differences: Sequence[float]) -> str:
    """The verdict where seeds are added one by one, against a baseline of zeros."""
    contrast = Contrast("b", "v", expect, "w", score="accuracy")
    sides = by_seed(list(differences)), by_seed([0.0] * len(differences))
    return judge_contrasts([Evidence(contrast, *sides, BY_LOOK)])[0].verdict


@given(st.lists(numbers, min_size=3, max_size=9), st.sampled_from(["higher", "lower"]))
def test_a_verdict_by_look_stays_when_seeds_are_added(differences: list[float], expect: str) -> None:
    found = [verdict_by_look(expect, differences[:seeds]) for seeds in range(3, len(differences) + 1)]
    first = next((one for one in found if one != UNCLEAR), UNCLEAR)
    assert set(found[found.index(first) :]) == {first}


def test_means_are_those_of_the_seeds_that_decided() -> None:
    own, base = by_seed([0.31, 0.3, 0.3, 5.0]), by_seed([0.0, 0.0, 0.0, 1.0])
    outcome = judge_contrasts([Evidence(Contrast("b", "v", "higher", "w", score="accuracy"), own, base, BY_LOOK)])[0]
    assert outcome.verdict == HOLDS and outcome.variant and outcome.baseline and outcome.difference
    assert outcome.variant.mean - outcome.baseline.mean == pytest.approx(outcome.difference.mean)


def test_seeds_lost_at_the_first_look_are_passed_over() -> None:
    own, base = by_seed([0.3, 0.31, 0.3]), by_seed([0.0] * 6)
    lost = dict.fromkeys(range(3)) | {seed + 3: score for seed, score in own.items()}
    contrast = Contrast("b", "v", "higher", "w", score="accuracy")
    outcome = judge_contrasts([Evidence(contrast, lost, base, BY_LOOK)])[0]
    assert outcome.verdict == UNCLEAR and outcome.lost == (3, 0) and outcome.difference


@pytest.mark.parametrize("truth", [0.0, BY_LOOK.margin])
def test_seeds_that_are_added_until_a_decision_mislead_in_one_of_twenty_cases(truth: float) -> None:
    draws = np.random.default_rng(0).normal(truth, 0.6, size=(300, 6))
    found = Counter(verdict_by_look("higher", draw) for draw in draws)
    false = found[NEITHER] + found[FAILS] if truth else found[HOLDS] + found[FAILS]
    assert 0.015 * len(draws) < false < 0.075 * len(draws)
    at_once = sum(any(paired_p(list(draw[:seeds])) < 0.05 for seeds in range(3, 7)) for draw in draws)
    assert truth or at_once > 0.08 * len(draws)


def test_a_claim_of_a_difference_below_the_margin_is_of_none() -> None:
    close = [0.01, -0.02, 0.015, 0.0]
    assert verdict_by_look("higher", close) == verdict_by_look("lower", close) == NEITHER
    assert verdict_by_look("higher", [0.31, 0.3, 0.3]) == HOLDS, "a difference that shows decides before the margin"
    assert verdict("higher", by_seed(close), by_seed([0.0] * 4)) == UNCLEAR, "without a margin"


@given(st.integers(0, 30), st.integers(0, 30))
def test_an_interval_of_a_rate_holds_the_rate(hits: int, misses: int) -> None:
    rate = Rate(hits, hits + misses)
    low, high = rate.interval
    assert 0 <= low <= high <= 1 and (not rate.trials or low <= hits / rate.trials <= high)
    mirrored = binomial_interval(misses, rate.trials)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_an_interval_of_a_rate_is_that_of_clopper_and_pearson() -> None:
    assert binomial_interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert binomial_interval(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)


@pytest.mark.parametrize(
    ("published", "own", "result"),
    [
        ("better", [0.80, 0.81, 0.79], "came out"),
        ("better", [1.20, 1.21, 1.19], "came out the other way"),
        ("better", [0.9, 1.2, 0.8], "undecided"),
        ("worse", [1.20, 1.21, 1.19], "came out"),
        ("no better", [1.000, 1.001, 0.999], "came out"),
        ("no better", [0.80, 0.81, 0.79], "came out the other way"),
        ("no better", [0.9, 1.2, 0.8], "undecided"),
    ],
)
def test_a_published_sign_comes_out_the_other_way_or_is_undecided(published: str, own, result: str) -> None:
    ladder = find_benchmark("ladder")
    variant, condition = "gpt2-style:norm=rmsnorm", "0.3 M"
    compare = {"benchmark": "ladder", "variant": variant, "baseline": "gpt2-style"}
    rows = made_rows(ladder, {variant: own, "gpt2-style": [1.0] * 3}, condition, settings={"learning_rate": 0.01})
    sign = Sign("s", "s", published, "norms", compare, effect=-0.1)
    trials = try_sign(sign, Path("mine.yaml"), {"ladder": ladder}, {"ladder": rows})
    found = Calibration(trials, [])
    assert [trial.result for trial in trials] == ["not recorded yet", result, "not recorded yet"]
    is_decided = result != "undecided"
    assert (found.rate(condition).trials, found.decided(condition).hits) == (is_decided, is_decided)
    assert found.rate(condition).hits == (result == "came out") and found.correlation(condition) is None
    assert found.by_theme() == {"norms": found}
    assert len(found.differences(condition, decided=is_decided)) == 1
    assert found.differences(condition, decided=not is_decided) == []
    assert found.by_chance(condition) == ({"came out": 0.5, "undecided": None}.get(result, 1.0))
    tried = {"learning_rate": [0.001, 0.003, 0.01]}
    edge = [replace(row, settings={**row.settings, "tried": tried}) for row in rows]
    assert try_sign(sign, Path("mine.yaml"), {"ladder": ladder}, {"ladder": edge})[1].result == "undecided"


@pytest.mark.parametrize(
    ("published", "rate"),
    [(["worse"], Rate(0, 1)), (["better", "better"], Rate(1, 1)), (["better", "no better", "better"], Rate(0, 0))],
)
def test_comparisons_on_which_sources_disagree_do_not_count(published: list[str], rate: Rate) -> None:
    ladder, variant = find_benchmark("ladder"), "gpt2-style:norm=rmsnorm"
    compare = {"benchmark": "ladder", "variant": variant, "baseline": "gpt2-style"}
    sides = {variant: [0.80, 0.81, 0.79], "gpt2-style": [1.0] * 3}
    rows = made_rows(ladder, sides, "0.3 M", settings={"learning_rate": 0.01})
    signs = [Sign("s", f"source {i}", one, "norms", compare) for i, one in enumerate(published)]
    found = [try_sign(sign, Path("mine.yaml"), {"ladder": ladder}, {"ladder": rows}) for sign in signs]
    assert Calibration([trial for trials in found for trial in trials], []).agreed.rate("0.3 M") == rate


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=12))
def test_the_correlation_of_ranks_is_that_of_pandas(pairs: list[tuple[int, int]]) -> None:
    one, other = ([float(value) for value in side] for side in zip(*pairs, strict=True))
    found = rank_correlation(one, other)
    ranks = [pandas.Series(side).rank() for side in (one, other)]
    expected = ranks[0].corr(ranks[1])
    assert found == pytest.approx(expected, abs=1e-9) if found is not None else math.isnan(expected)
