"""One reading decides: the word of a verdict, its sentence, its interval and its picture agree."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_comparison import made_up

from zoo.comparison import Run, summarize
from zoo.comparison.display.findings import sentence, sentences
from zoo.comparison.display.report.charts import draw_forest
from zoo.comparison.display.report.page import to_html
from zoo.comparison.results.statistics import BETTER, FEWEST_SEEDS, SAME, UNDECIDED, UNKNOWN, WORSE

scores = st.lists(
    st.lists(st.floats(20, 40) | st.sampled_from([30.0, 31.0, None]), min_size=1, max_size=6), min_size=2, max_size=5
)


designs = st.one_of(
    st.none(), st.builds(dict, margin=st.sampled_from([None, 0.5, 8.0]), limit=st.sampled_from([None, 3, 6, 9]))
)


def comparison_of(table: list[list[float | None]], design: Any = None) -> Any:
    """A comparison with given scores, a list a variant; None is a run that failed."""
    seeds = min(map(len, table))
    comparison = made_up({f"v{place}": (30.0, 1.0) for place in range(len(table))}, seeds=seeds)
    runs = []
    for run in comparison.runs:
        score = table[int(run.name[1:])][run.seed]
        if score is None:
            runs.append(Run(run.name, run.folder, seed=run.seed, error="gone"))
            continue
        run.report["scores"]["bleu"]["value"] = score
        runs.append(run)
    return replace(comparison, runs=runs, design=design)


@settings(max_examples=300, deadline=None)
@given(scores, designs)
def test_word_sentence_interval_and_picture_agree(table: list[list[float | None]], design: Any) -> None:
    summary = summarize(comparison_of(table, design))
    margin = summary.design.margin
    shown = "\n".join(sentences(summary))
    for row in summary.rows[1:]:
        difference, decided = row.difference, row.verdict in (BETTER, WORSE)
        for word in (BETTER, WORSE):
            assert (f"{row.name} is {word} than v0:" in shown) == (row.verdict == word)
        assert (f"{row.name} is the same as v0 within" in shown) == (row.verdict == SAME)
        assert (f"{row.name} against v0 is undecided" in shown) == (row.verdict == UNDECIDED)
        if difference is None:
            assert not decided
            continue
        p = difference.decisive
        assert (decided or row.verdict == SAME) == (p is not None and p < 0.05)
        if row.verdict == SAME:
            assert margin is not None and abs(difference.mean) < margin and not difference.lost
        if decided or row.verdict == SAME:
            assert difference.pairs + difference.lost >= FEWEST_SEEDS
        if difference.interval is not None and difference.adjusted is not None:
            low, high = difference.interval
            assert low <= difference.mean <= high
            if margin is not None:
                assert row.verdict != SAME or -margin < low <= high < margin
            if abs(difference.adjusted - 0.05) > 1e-6 and row.verdict != SAME:
                assert decided == (low > 0 or high < 0)
        assert summary.main is not None
        drawn = draw_forest(summary.main, [row], "v0", 900, margin)
        assert drawn is not None and ("hollow" in drawn) == (not decided)
        assert ("margin" in drawn) == (margin is not None)
        assert row.verdict in drawn and row.verdict in (sentence(row, summary.main, "v0", 1) + row.verdict)


def test_nothing_is_the_same_where_a_run_was_lost() -> None:
    """Two pairs, one of them equal, and a lost run: three seeds, and nothing known of the third."""
    table = [[20.0, 20.0, 21.0], [20.0, None, 20.0]]
    summary = summarize(comparison_of(table, {"margin": 8.0, "limit": None}))
    assert summary.rows[1].verdict != SAME


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_test_nothing(seeds: int) -> None:
    """Two differences that are nearly the same have a p of 0.0001."""
    summary = summarize(comparison_of([[30.0, 30.0001][:seeds], [39.0, 39.0][:seeds]]))
    assert summary.rows[1].verdict == UNKNOWN
    shown = "\n".join(sentences(summary))
    assert "better" not in shown and "three seeds" in shown


def test_the_loss_decides_in_place_of_perplexity() -> None:
    comparison = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=5)
    for run in comparison.runs:
        value = math.exp(run.report["heldout_loss"])
        score = {"name": "Perplexity", "value": value, "signature": "-", "higher_is_better": False}
        run.report["scores"] = {"perplexity": score}
    summary = summarize(replace(comparison, main_score="perplexity"))
    assert summary.main is not None and summary.main.key == "heldout_loss"
    losses = [[run.report["heldout_loss"] for run in row.runs] for row in summary.rows]
    expected = sum(one - other for one, other in zip(losses[1], losses[0], strict=True)) / 5
    assert summary.rows[1].difference is not None and summary.rows[1].difference.mean == pytest.approx(expected)


def test_nothing_in_a_report_names_another_reading() -> None:
    page = re.sub(r"\s+", " ", to_html(summarize(made_up(seeds=3))))
    for words in ("noise floor", "second reading", "Dunnett", "Shaded"):
        assert words not in page
