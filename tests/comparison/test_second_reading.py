"""Second readings of seeds: pooled noise, power, equivalence, other sentences; on results whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_comparison import made_up

from zoo.comparison import summarize
from zoo.comparison.display.findings import sentences
from zoo.comparison.results.distributions import largest_quantile
from zoo.comparison.results.pooled import pooled_test
from zoo.comparison.results.power import equivalence_p, same_within, seeds_needed, smallest_difference
from zoo.comparison.results.resampled_sentences import sentence_tests
from zoo.comparison.results.statistics import BETTER, PairedDifference, Pairs, compare_all, verdict


@pytest.mark.parametrize(
    "freedom, criticals", [(5, "2.57 3.03 3.29 3.48 3.62 3.73 3.82"), (20, "2.09 2.38 2.54 2.65 2.73 2.80 2.86")]
)
def test_dunnetts_distribution_is_that_of_his_table(freedom, criticals):
    # Dunnett 1964, table II: two-sided, 5 %.
    found = [largest_quantile(0.95, comparisons, freedom) for comparisons in range(1, 8)]
    assert [f"{value:.2f}" for value in found] == criticals.split()


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda luck, shape: luck.normal(size=shape), id="normal"),
        pytest.param(lambda luck, shape: luck.binomial(200, 0.995, shape) / 200, id="accuracy near one"),
        pytest.param(lambda luck, shape: luck.binomial(20, 0.5, shape) / 20, id="few examples"),
        pytest.param(lambda luck, shape: luck.standard_t(3, shape), id="heavy tails"),
        pytest.param(lambda luck, shape: np.round(luck.normal(size=shape), 0), id="ties"),
    ],
)
def test_the_second_reading_raises_no_more_alarms(draw, seeds):
    luck = np.random.default_rng(seeds)
    tests = [pooled(draw(luck, (8, seeds)) + luck.normal(size=seeds)) for _ in range(400)]
    assert np.mean([bool(test and test.told) for test in tests]) <= 0.05 + 0.033


def pooled(scores):
    """Dunnett's test of variants against the first."""
    return pooled_test({str(place): list(row) for place, row in enumerate(scores)}, "0")


def test_the_second_reading_finds_what_the_first_misses():
    luck, found, first = np.random.default_rng(0), 0, 0
    offered = 0
    for _ in range(300):
        scores = luck.normal(size=(8, 3))
        scores[1] += 3
        test = pooled(scores)
        if test is not None:
            offered += 1
            found += "1" in test.told
            assert (test.p("1") < 0.05) == ("1" in test.told)
        first += verdict(compare_all([Pairs(row) for row in scores[1:] - scores[0]])[0]) == BETTER
    assert found / offered > 0.65 and first / 300 < 0.25 and offered / 300 > 0.6


def test_the_second_reading_is_not_offered_where_noise_is_not_alike():
    luck = np.random.default_rng(0)
    spreads = np.array([[5], *[[1]] * 7])
    assert np.mean([pooled(spreads * luck.normal(size=(8, 5))) is None for _ in range(100)]) > 0.9
    assert pooled([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]) is None and pooled(luck.normal(size=(2, 5))) is None
    assert pooled(luck.normal(size=(3, 1))) is None


def test_power_is_what_simulation_says():
    luck, difference = np.random.default_rng(0), smallest_difference(2.0, 4, tests=3)
    noise = luck.normal(scale=2.0, size=(4000, 4))
    within = [3 * PairedDifference.of(Pairs(row + difference)).p < 0.05 for row in noise]
    assert np.mean(within) == pytest.approx(0.8, abs=0.02)
    assert seeds_needed(2.0, difference, tests=3) == 4 and seeds_needed(2.0, 0.999 * difference, tests=3) == 5
    assert seeds_needed(1.0, 100.0) == 2 and seeds_needed(1.0, 1e-6) is None
    # Cohen 1988, table 2.3 for paired samples: d = 0.5, 80 % by 34 pairs.
    assert seeds_needed(1.0, 0.5) == 34


def test_two_variants_are_called_the_same_in_one_of_twenty_where_they_are_not():
    luck = np.random.default_rng(0)
    at_the_margin = [PairedDifference.of(Pairs(row + 1.0)) for row in luck.normal(scale=0.3, size=(4000, 4))]
    assert np.mean([equivalence_p(one, 1.0) < 0.05 for one in at_the_margin]) == pytest.approx(0.05, abs=0.011)
    one = PairedDifference.of(Pairs([0.1, -0.2, 0.15, 0.3]))
    assert equivalence_p(one, 0.5) == pytest.approx(0.0146175, abs=1e-6)  # scipy's two ttest_1samp
    assert equivalence_p(one, same_within(one)) == pytest.approx(0.05) and equivalence_p(one, 0.01) > 0.5
    assert equivalence_p(one, same_within(one, tests=5)) == pytest.approx(0.01)
    same = PairedDifference.of(Pairs([0.0, 0.0]))
    assert (equivalence_p(same, 1.0), same_within(same)) == (1.0, None)


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
