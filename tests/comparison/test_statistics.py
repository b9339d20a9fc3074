"""Statistics, on results with a known answer."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_comparison import made_up

from zoo.comparison import summarize
from zoo.comparison.display.findings import sentence_tests, sentences
from zoo.comparison.results.distributions import student_quantile, student_within
from zoo.comparison.results.statistics import (
    BETTER,
    EQUAL,
    NOISE,
    UNKNOWN,
    WORSE,
    Measurements,
    PairedDifference,
    Pairs,
    bootstrap_interval,
    compare_all,
    equivalence_p,
    holm,
    most_coverage,
    paired_p,
    same_within,
    seeds_needed,
    sign_p,
    smallest_difference,
    student_interval,
    typical_spread,
    verdict,
)

values = st.floats(-100, 100).map(lambda value: round(value, 3))
samples = st.lists(values, min_size=2, max_size=5)


TABLE = [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]


@pytest.mark.parametrize("freedom, quantile", TABLE)
def test_students_distribution_is_that_of_the_tables(freedom, quantile):
    assert student_within(quantile, freedom) == pytest.approx(0.95, abs=1e-5)
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-4)
    assert student_within(0.0, freedom) == 0.0 and student_within(1e9, freedom) == pytest.approx(1)


def test_the_example_that_student_gave():
    # Hours of sleep gained by two drugs, ten patients: t = 4.0621, p = 0.00283 (Student 1908, section 9).
    differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    found = PairedDifference.of(Pairs(differences))
    assert found.mean == pytest.approx(1.58) and found.p == pytest.approx(0.00283, abs=5e-6)
    assert found.interval == (pytest.approx(0.7001, abs=1e-4), pytest.approx(2.4599, abs=1e-4))
    assert found.effect * math.sqrt(10) == pytest.approx(4.0621, abs=1e-4)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_no_difference_is_noise_in_nineteen_of_twenty(seeds):
    noise = np.random.default_rng(seeds).normal(size=(4000, seeds))
    verdicts = [verdict(*compare_all([Pairs(differences)])) for differences in noise]
    assert verdicts.count(NOISE) / len(verdicts) == pytest.approx(0.95, abs=0.011)  # three standard errors
    assert verdicts.count(BETTER) == pytest.approx(verdicts.count(WORSE), abs=60)


def test_one_false_alarm_among_seven_variants_is_as_rare():
    generator = np.random.default_rng(7)
    alarms = 0
    for _ in range(1500):
        scores = generator.normal(size=(8, 5))  # a baseline and seven variants, which share its luck
        found = compare_all([Pairs(row) for row in scores[1:] - scores[0]])
        alarms += any(verdict(one) not in (NOISE, EQUAL) for one in found)
    assert alarms / 1500 <= 0.05 + 0.015 and alarms > 0


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda luck, shape: luck.binomial(200, 0.995, shape) / 200, id="accuracy near one"),
        pytest.param(lambda luck, shape: luck.binomial(20, 0.5, shape) / 20, id="few examples"),
        pytest.param(lambda luck, shape: luck.standard_t(3, shape), id="heavy tails"),
        pytest.param(lambda luck, shape: np.round(luck.normal(size=shape), 0), id="ties"),
    ],
)
def test_scores_that_are_counted_or_heavy_tailed_raise_no_more_alarms(draw, seeds):
    luck = np.random.default_rng(seeds)
    alarms = 0
    for _ in range(400):
        scores = draw(luck, (8, seeds))
        found = compare_all([Pairs(row) for row in scores[1:] - scores[0]])
        alarms += any(verdict(one) not in (NOISE, EQUAL) for one in found)
    assert alarms / 400 <= 0.06 + 0.03


def test_a_lost_run_is_worse_than_any_number():
    # Two seeds are far better, and three have failed: it must not be chosen.
    lost = PairedDifference.of(Pairs([5.0, 5.1], lost=3))
    assert (lost.wins, lost.losses, lost.p) == (2, 3, 1.0)
    (always,) = compare_all([Pairs([0.1, 0.2], lost=6)])
    assert verdict(always) == NOISE and always.p == pytest.approx(sign_p(2, 6))
    (spared,) = compare_all([Pairs([-0.1, -0.2], baseline_lost=8, better=-1)])
    assert verdict(spared) == BETTER and spared.p == 2 / 2**10
    (worse,) = compare_all([Pairs([-0.1, -0.2], lost=8)])
    assert verdict(worse) == WORSE


def test_the_sign_test_counts_tosses_of_a_coin():
    assert [sign_p(wins, 0) for wins in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]
    # Arbuthnot 1710: 82 years in which more boys than girls were christened.
    assert sign_p(82, 0) == 2 / 2**82 and sign_p(5, 5) == 1.0
    assert sign_p(9, 1) == pytest.approx(2 * (1 + 10) / 1024) == sign_p(1, 9)


def test_a_planted_difference_is_found_with_its_direction():
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        luck = generator.normal(scale=10, size=5)  # a lucky seed is lucky for all: pairs take it out
        baseline, better, same = luck + generator.normal(scale=0.3, size=(3, 5)) + [[0], [3], [0]]
        own, theirs = better - baseline, Pairs(same - baseline)
        (one, _), (other, _) = (compare_all([Pairs(own, better=sign), theirs]) for sign in (1, -1))
        found += verdict(one) == BETTER and verdict(other) == WORSE
    assert found > 290


def test_a_verdict_has_the_direction_of_the_mean_that_was_tested():
    # On most seeds slightly worse, on the others far better: the t-test is of the mean.
    differences = [-0.01] * 5 + [1.0, 1.1, 0.9, 1.0, 1.0]
    (found,) = compare_all([Pairs(differences)])
    assert found.interval is not None and found.interval[0] > 0 and found.wins == found.losses
    assert verdict(found) == BETTER
    (fewer,) = compare_all([Pairs([*differences, -0.01], better=-1)])
    assert fewer.interval is not None and fewer.interval[0] > 0 and fewer.wins > fewer.losses
    assert verdict(fewer) == WORSE


def test_what_cannot_be_decided_is_not_decided():
    *few, tested = compare_all([Pairs([0.7]), Pairs([0.7, 0.70001]), Pairs([0.1, 0.2, 0.3])])
    assert all(verdict(one) == UNKNOWN and one.interval is one.p is None for one in few)
    assert tested.adjusted == tested.p  # not corrected for what was not tested
    same, other = compare_all([Pairs([0.0, 0.0, 0.0]), Pairs([0.1, 0.1, 0.1])])
    assert (verdict(same), same.adjusted, verdict(other), other.effect) == (EQUAL, 1.0, NOISE, None)
    one = Measurements([3.0])
    assert (one.mean, one.deviation, one.interval) == (3.0, None, None)


def test_holm_goes_down_step_by_step():
    # Holm 1979: the smallest times their number, the next times one less, never below one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02]) and holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    (alone,) = compare_all([Pairs([1.0, 1.1, 1.3])], others=3)  # the first of four tests
    assert alone.adjusted == pytest.approx(4 * alone.p)


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_intervals_hold_the_mean_as_often_as_stated(seeds):
    noise = np.random.default_rng(seeds).normal(size=(300 if seeds > 6 else 800, seeds))
    held = np.mean([low < 0 < high for low, high in map(bootstrap_interval, noise)])
    assert held == pytest.approx(min(0.95, most_coverage(seeds)), abs=0.04)
    exact = np.mean([low < 0 < high for low, high in map(student_interval, noise)])
    assert exact == pytest.approx(0.95, abs=0.025)


def test_more_values_than_can_be_gone_through():
    sample = Measurements([float(value) for value in range(20)])
    assert sample.interval == pytest.approx((6.5, 12.5), abs=0.6) and sample.deviation == pytest.approx(5.916, abs=1e-3)
    assert Measurements(sample.values[::-1]).interval == sample.interval


@settings(max_examples=60, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(sample, random):
    shuffled = random.sample(sample, len(sample))
    one, other = Measurements(sample), Measurements(shuffled)
    assert one.interval == other.interval and one.mean == other.mean
    assert one.deviation == pytest.approx(other.deviation, abs=1e-12)
    assert paired_p(sample) == pytest.approx(paired_p(shuffled), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(samples, st.floats(0.01, 100), values)
def test_units_do_not_matter(sample, scale, shift):
    plain, scaled = Measurements(sample), Measurements([scale * value + shift for value in sample])
    assert scaled.mean == pytest.approx(scale * plain.mean + shift, abs=1e-6)
    assert scaled.interval == pytest.approx([scale * end + shift for end in plain.interval], abs=1e-6)
    assert scaled.deviation == pytest.approx(scale * plain.deviation, abs=1e-6)
    assert min(sample) - 1e-9 <= plain.interval[0] <= plain.mean + 1e-9 <= plain.interval[1] + 2e-9
    different = [value for value in sample if value]
    if len(set(different)) > 1:
        assert paired_p([scale * value for value in different]) == pytest.approx(paired_p(different), abs=1e-7)
        assert paired_p([-value for value in different]) == pytest.approx(paired_p(different), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_correction_keeps_the_order_and_is_never_kinder(p_values, random):
    adjusted = holm(p_values)
    assert all(one <= new <= min(1, len(p_values) * one) for one, new in zip(p_values, adjusted, strict=True))
    ranked = [corrected for _, corrected in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)
    order = random.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[place] for place in order]) == [adjusted[place] for place in order]


def test_power_is_that_of_a_simulation():
    luck, difference = np.random.default_rng(0), smallest_difference(2.0, 4, tests=3)
    noise = luck.normal(scale=2.0, size=(4000, 4))
    within = [3 * PairedDifference.of(Pairs(row + difference)).p < 0.05 for row in noise]
    assert np.mean(within) == pytest.approx(0.8, abs=0.02)
    assert seeds_needed(2.0, difference, tests=3) == 4 and seeds_needed(2.0, 0.999 * difference, tests=3) == 5
    assert seeds_needed(1.0, 100.0) == 2 and seeds_needed(1.0, 1e-6) is None
    # Cohen 1988, table 2.3 for paired samples: d = 0.5, 80 % by 34 pairs.
    assert seeds_needed(1.0, 0.5) == 34
    both = [0.0, 1.0, 5.0], [2.0, 2.5, 2.0, 4.0]
    pooled = math.sqrt(np.mean([np.var(one, ddof=1) for one in both]))
    assert typical_spread(compare_all(list(map(Pairs, both)))) == (pytest.approx(pooled), 3, 2)


def test_two_variants_are_called_the_same_in_one_of_twenty_where_they_are_not():
    luck = np.random.default_rng(0)
    at_the_margin = [PairedDifference.of(Pairs(row + 1.0)) for row in luck.normal(scale=0.3, size=(4000, 4))]
    assert np.mean([equivalence_p(one, 1.0) < 0.05 for one in at_the_margin]) == pytest.approx(0.05, abs=0.011)
    one = PairedDifference.of(Pairs([0.1, -0.2, 0.15, 0.3]))
    assert equivalence_p(one, 0.5) == pytest.approx(0.0146175, abs=1e-6)  # scipy's two ttest_1samp
    assert equivalence_p(one, same_within(one)) == pytest.approx(0.05) and equivalence_p(one, 0.01) > 0.5
    assert equivalence_p(one, same_within(one, tests=5)) == pytest.approx(0.01)
    same = PairedDifference.of(Pairs([0.0, 0.0]))
    assert (equivalence_p(same, 1.0), equivalence_p(same, 0.0), same_within(same)) == (0.25, 1.0, None)


def test_other_sentences_are_another_question():
    comparison = made_up({"a": (30.0, 1.0), "b": (60.0, 1.0), "c": (30.0, 1.0)}, seeds=1)
    references = [f"{number} words of a sentence that is long enough" for number in range(40)]
    outputs = {"a": [text[:-7] for text in references], "b": references, "c": [text[:-7] for text in references]}
    runs = [replace(run, outputs=outputs[run.name]) for run in comparison.runs]
    tested = replace(comparison, runs=runs, references=references, sources=references)
    found = sentence_tests(tested)
    assert found["b"] == pytest.approx(2 / 1001) and found["c"] == 1.0
    words = " ".join(sentences(summarize(tested)))
    assert "Of seed 0 alone, outputs differ beyond the choice of sentences" in words and "b (p = 0.002)" in words
    assert sentence_tests(replace(tested, main_score="accuracy")) == {}
