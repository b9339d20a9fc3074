"""Beside the verdicts: power, equivalence, other sentences; on results whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_comparison import made_up

from zoo.comparison import summarize
from zoo.comparison.display.findings import sentence_tests, sentences
from zoo.comparison.results.statistics import (
    PairedDifference,
    Pairs,
    equivalence_p,
    same_within,
    seeds_needed,
    smallest_difference,
)


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
