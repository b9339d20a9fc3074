"""Readings across conditions find the widths and exponents that rows were made of."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from benchmarks.made_rows import made_rows
from hypothesis import given
from hypothesis import strategies as st

from zoo.base.errors import UnknownNameError
from zoo.comparison.benchmarks import Row, find_benchmark
from zoo.comparison.benchmarks.across import BRACKETS, averages, read_across, spearman, width
from zoo.comparison.benchmarks.definition import read
from zoo.data.tasks.metrics import mean_ranks

VALLEY, LADDER = find_benchmark("lr-robustness"), replace(find_benchmark("ladder"), margin=None, most_seeds=None)
RATES = [float(name) for name in VALLEY.conditions]


def valley_rows(variant: str, losses: list[float | None]) -> list[Row]:
    """A row a rate and a seed; None is a run that diverged."""
    by_rate = zip(VALLEY.conditions, losses, strict=True)
    runs = {at: [None if loss is None else loss + seed / 1000 for seed in range(3)] for at, loss in by_rate}
    return [row for at, own in runs.items() for row in made_rows(VALLEY, {variant: own}, at)]


def test_a_valley_ends_where_the_loss_rises_by_the_margin_or_a_run_diverges() -> None:
    points = [(0.001, 2.0), (0.01, 1.0), (0.1, 1.2), (1.0, None)]
    assert width(points, 0.1) == pytest.approx(0.1 + 0.5) and width(points, 0.5) == pytest.approx(0.5 + 1.0)
    assert width(points, 5.0) == pytest.approx(2.0)  # up to the last rate that trained
    assert width([(0.1, None), (1.0, None)], 0.1) == 0.0


@given(
    losses=st.lists(st.one_of(st.none(), st.floats(0, 10)), min_size=7, max_size=7),
    margin=st.floats(0.01, 5),
    shift=st.floats(0.01, 100),
)
def test_a_valley_is_as_wide_wherever_it_lies(losses: list[float | None], margin: float, shift: float) -> None:
    here = width(list(zip(RATES, losses, strict=True)), margin)
    assert 0 <= here <= math.log10(RATES[-1] / RATES[0]) + 1e-9
    assert width([(shift * one, loss) for one, loss in zip(RATES, losses, strict=True)], margin) == pytest.approx(here)
    assert width(list(zip(RATES, losses, strict=True)), 2 * margin) >= here - 1e-9


def test_the_widest_valley_comes_first_with_a_verdict() -> None:
    rows = [
        *valley_rows("pre-norm", [1.0, 0.5, 0.4, 0.45, 2.0, None, None]),
        *valley_rows("pre-norm:qk_norm=head", [0.42, 0.41, 0.4, 0.4, 0.41, 0.42, 1.5]),
        *valley_rows("post-norm", [0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4])[:-1],  # not all conditions with seed 2
    ]
    reading = read_across(VALLEY, rows)
    assert reading is not None
    table = {row[0]: row for row in reading.rows}
    assert [row[0] for row in reading.rows] == ["post-norm", "pre-norm:qk_norm=head", "pre-norm"]
    assert table["pre-norm"][5] == "baseline" and table["post-norm"][1] == "2"
    assert float(table["pre-norm:qk_norm=head"][2].split()[0]) > 2.4 > float(table["pre-norm"][2].split()[0])


def test_exponents_and_crossings_are_those_that_rows_were_made_of() -> None:
    flops = dict(zip(LADDER.conditions, (1e12, 1e13, 1e14), strict=True))
    curves = {"gpt2-style": (-0.10, 2.0), "gpt2-style:norm=rmsnorm": (-0.15, 2.0 * 1e13**0.05)}  # they cross at 1e13
    noise = {"gpt2-style": 0.0, "gpt2-style:norm=rmsnorm": 0.0001}
    powers = {name: [slope + noise[name] * (seed - 2) for seed in range(5)] for name, (slope, _) in curves.items()}
    rows = []
    for condition, x in flops.items():
        losses = {name: [curves[name][1] * x**power for power in own] for name, own in powers.items()}
        rows += made_rows(LADDER, losses, condition, training_flops=x)
    reading = read_across(LADDER, rows)
    assert reading is not None
    table = {row[0]: row for row in reading.rows}
    assert table["gpt2-style"][2].startswith("-0.1000 ") and table["gpt2-style:norm=rmsnorm"][2].startswith("-0.1500 ")
    assert table["gpt2-style:norm=rmsnorm"][5] == "better"
    assert table["gpt2-style:norm=rmsnorm"][7] == "10.0 TFLOPs", table["gpt2-style:norm=rmsnorm"]
    assert read_across(LADDER, rows, data="f" * 64) is None  # rows of other data are never mixed
    reading = read_across(LADDER, [*rows[:-1], replace(rows[-1], values={}, error="it diverged")])
    assert reading is not None
    assert reading.rows[-1] == ["gpt2-style:norm=rmsnorm", "5 (1 run lost)", "", "", "", "untested", "", ""]
    assert "the loss at 10.0 TFLOPs" in reading.summary and "nan" not in str(reading)
    reading = read_across(LADDER, [*rows[:-1], replace(rows[-1], values={"heldout_loss": 2.0})])
    assert reading is not None and "untested" in reading.rows[-1] and "nan" not in str(reading), "uncounted operations"


def test_there_is_none_without_rows_and_none_of_an_unknown_kind(tmp_path: Path) -> None:
    assert read_across(VALLEY, []) is None and read_across(find_benchmark("char-lm"), []) is None
    file = tmp_path / "mine.yaml"
    file.write_text(
        "version: 1\nsummary: s\nminutes: 1\nvariants: [pre-norm]\nseeds: 1\nscore: heldout_loss\n"
        "across: {reading: valey}\ncompare: {task: copy}\n"
    )
    with pytest.raises(UnknownNameError, match="unknown reading 'valey'.*did you mean 'valley'"):
        read(file)


def test_averages_are_taken_run_by_run_and_a_lost_run_has_none() -> None:
    mad = replace(find_benchmark("mad-memorization"), variants=["llama-style", "gpt2-style"])
    rows = []
    for place, condition in enumerate(mad.conditions):
        first = {"llama-style": 20.0 + 10 * place, "gpt2-style": 40.0 + 10 * place}
        rows += made_rows(mad, {name: [score + seed for seed in range(4)] for name, score in first.items()}, condition)
    lost = replace(rows[-1], values={}, error="it diverged")
    assert averages(mad, [*rows[:-1], lost])["gpt2-style"] == {0: 65.0, 1: 66.0, 2: 67.0, 3: None}
    reading = read_across(mad, [*rows[:-1], lost])
    assert reading is not None and reading.headings[2] == "Average"
    (first, second) = reading.rows
    assert (first[0], first[1], reading.rows[1][1]) == ("gpt2-style", "4 (1 run lost)", "4")
    assert first[2] == "66.00 (63.52 to 68.48)", "65, 66, 67: 66 ± 4.3027/√3"
    assert reading.summary.endswith("Student's interval of 95 % for the mean over seeds.")
    assert second[0] == "llama-style" and second[2].startswith("46.50") and second[5] == "baseline"


ENGLISH = find_benchmark("english")


def english_rows(scores: dict[str, tuple[float, float]], seeds: int = 3) -> list[Row]:
    """A row a seed, with a loss and an accuracy on BLiMP that do not depend on it."""
    made = (made_rows(ENGLISH, {name: [loss] * seeds}, blimp=blimp) for name, (loss, blimp) in scores.items())
    return [row for own in made for row in own]


def test_ranks_agree_where_the_lower_loss_has_the_higher_accuracy() -> None:
    scores = {"gpt2-style": (4.0, 60.0), "llama-style": (3.8, 62.0), "bloom-style": (4.1, 59), "qwen3-style": (3.9, 61)}
    reading = read_across(ENGLISH, english_rows(scores))
    assert reading is not None and BRACKETS in reading.summary and "p = 0.083" in reading.summary
    assert "over 4 variants (Held-out loss, BLiMP): +1.00" in reading.summary
    alone = read_across(ENGLISH, english_rows(scores, seeds=1))
    assert alone is not None and BRACKETS not in alone.summary
    assert [row[0] for row in reading.rows] == ["llama-style", "qwen3-style", "gpt2-style", "bloom-style"]
    assert [row[3] for row in reading.rows] == [row[5] for row in reading.rows] == ["1", "2", "3", "4"]
    turned = {name: (loss, -accuracy) for name, (loss, accuracy) in scores.items()}
    reading = read_across(ENGLISH, english_rows(turned))
    assert reading is not None and "-1.00" in reading.summary
    assert read_across(ENGLISH, english_rows(dict(list(scores.items())[:2]))) is None, "two have no correlation"
    diverged = [
        replace(row, error="it diverged") if row.seed == 2 else row for row in english_rows({"albert": (3.0, 70)})
    ]
    reading = read_across(ENGLISH, [*english_rows(scores), *diverged])
    assert reading is not None and "over 4 variants" in reading.summary, "of a lost run nothing is known"
    without = [replace(row, values={"heldout_loss": 4.0}) for row in english_rows(scores)]
    assert read_across(ENGLISH, without) is None


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_without_ties_the_correlation_is_that_of_squared_differences(one: list[int], other: list[int]) -> None:
    def of(left: Sequence[int], right: Sequence[int]) -> float:
        return 1 - 6 * sum((i - j) ** 2 for i, j in zip(left, right, strict=True)) / (5 * 24)

    found, share = spearman(mean_ranks(one), mean_ranks(other))
    assert found == pytest.approx(of(one, other))
    as_far = [abs(of(one, order)) >= abs(found) - 1e-9 for order in permutations(range(5))]
    assert share == pytest.approx(sum(as_far) / len(as_far))


def test_ties_share_a_rank_and_equal_scores_have_no_correlation() -> None:
    assert mean_ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [3.5, 1.0, 3.5, 2.0]
    assert spearman(mean_ranks([1.0, 1.0, 1.0]), mean_ranks([1.0, 2.0, 3.0])) == (0.0, 1.0)
    many = mean_ranks([float(i) for i in range(12)])
    found, share = spearman(many, many)
    assert found == pytest.approx(1.0) and 0 < share < 0.001
