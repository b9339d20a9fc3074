"""Readings across conditions find the widths and exponents that rows were made of."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.base.errors import UnknownNameError
from zoo.comparison.benchmarks import Row, find_benchmark
from zoo.comparison.benchmarks.across import averages, read_across, width
from zoo.comparison.benchmarks.definition import read

VALLEY, LADDER = find_benchmark("lr-robustness"), replace(find_benchmark("ladder"), margin=None, most_seeds=None)
RATES = [float(name) for name in VALLEY.conditions]


def valley_rows(variant: str, losses: list[float | None], seeds: int = 3) -> list[Row]:
    """A row a rate and a seed; None is a run that diverged."""
    return [
        Row(VALLEY.version, condition, variant, seed, error="it diverged")
        if loss is None
        else Row(VALLEY.version, condition, variant, seed, values={"heldout_loss": loss + seed / 1000})
        for seed in range(seeds)
        for condition, loss in zip(VALLEY.conditions, losses, strict=True)
    ]


def test_a_valley_ends_where_the_loss_rises_by_the_margin_or_a_run_diverges() -> None:
    points = [(0.001, 2.0), (0.01, 1.0), (0.1, 1.2), (1.0, None)]
    assert width(points, 0.1) == pytest.approx(0.1 + 0.5)
    assert width(points, 0.5) == pytest.approx(0.5 + 1.0)
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
    assert width([(shift * rate, loss) for rate, loss in zip(RATES, losses, strict=True)], margin) == pytest.approx(
        here
    )
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
    assert LADDER.text is not None
    curves = {"gpt2-style": (-0.10, 2.0), "gpt2-style:norm=rmsnorm": (-0.15, 2.0 * 1e13**0.05)}  # they cross at 1e13
    noise = {"gpt2-style": 0.0, "gpt2-style:norm=rmsnorm": 0.0001}
    rows = [
        Row(
            LADDER.version,
            condition,
            name,
            seed,
            data=LADDER.text.sha256,
            values={"heldout_loss": scale * x ** (slope + noise[name] * (seed - 2)), "training_flops": x},
        )
        for name, (slope, scale) in curves.items()
        for seed in range(5)
        for condition, x in flops.items()
    ]
    reading = read_across(LADDER, rows)
    assert reading is not None
    table = {row[0]: row for row in reading.rows}
    assert table["gpt2-style"][2].startswith("-0.1000 ")
    assert table["gpt2-style:norm=rmsnorm"][2].startswith("-0.1500 ")
    assert table["gpt2-style:norm=rmsnorm"][5] == "better"
    assert table["gpt2-style:norm=rmsnorm"][7] == "10.0 TFLOPs", table["gpt2-style:norm=rmsnorm"]
    assert read_across(LADDER, rows, data="f" * 64) is None  # rows of other data are never mixed
    reading = read_across(LADDER, [*rows[:-1], replace(rows[-1], values={}, error="it diverged")])
    assert reading is not None
    assert reading.rows[-1] == ["gpt2-style:norm=rmsnorm", "5 (1 run lost)", "", "", "", "untested", "", ""]


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
    rows = [
        Row(mad.version, condition, name, seed, values={"symbol_accuracy": better + 10 * place + seed})
        for name, better in (("llama-style", 20.0), ("gpt2-style", 40.0))
        for place, condition in enumerate(mad.conditions)
        for seed in range(4)
    ]
    lost = replace(rows[-1], values={}, error="it diverged")
    assert averages(mad, [*rows[:-1], lost])["gpt2-style"] == {0: 65.0, 1: 66.0, 2: 67.0, 3: None}
    reading = read_across(mad, [*rows[:-1], lost])
    assert reading is not None and reading.headings[2] == "Average"
    (first, second) = reading.rows
    assert first[0] == "gpt2-style" and first[2] == "66.00 (63.52 to 68.48)", "65, 66, 67: 66 ± 4.3027/√3"
    assert reading.summary.endswith("Student's interval of 95 % for the mean over seeds.")
    assert second[0] == "llama-style" and second[2].startswith("46.50") and second[5] == "baseline"
