"""Verdicts from rows agree with the standard library, count lost runs, and never mix what differs."""

import math
import runpy
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.made_rows import made_rows

from zoo.base.errors import UnknownNameError
from zoo.comparison.benchmarks import Row, benchmarks, find_benchmark, judge
from zoo.comparison.benchmarks.definition import Anchor
from zoo.comparison.benchmarks.running import BenchmarkRun

RESULTS = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "scripts/bench/results.py")))
anchors, description, front, markdown_table = (
    getattr(RESULTS, name) for name in ("anchors", "description", "front", "markdown_table")
)

NAMES = ["pre-norm", "post-norm", "rezero", "deepnorm"]
BENCHMARK = replace(find_benchmark("translation-en-pt"), variants=NAMES, seeds=5, conditions={"": {}})


rows = partial(made_rows, BENCHMARK, training_flops=1.0)
BASE = rows({"pre-norm": [70.0, 71.0, 70.5, 69.8, 70.2]})


def test_the_numbers_are_those_of_the_rows() -> None:
    verdicts = judge(BENCHMARK, [*BASE, *rows({"post-norm": [60.0, 61.5, 60.1, 60.3, 59.9]})])
    standing = verdicts.of("post-norm")
    assert standing is not None and standing.difference is not None
    assert standing.samples["bleu"].mean == pytest.approx(statistics.mean([60.0, 61.5, 60.1, 60.3, 59.9]))
    assert standing.samples["bleu"].deviation == pytest.approx(statistics.stdev([60.0, 61.5, 60.1, 60.3, 59.9]))
    assert standing.verdict == "worse" and standing.difference.mean == pytest.approx(-9.94)
    assert [one.variant for one in verdicts.standings] == ["pre-norm", "post-norm"]
    assert verdicts.missing == ["rezero", "deepnorm"]


def test_a_table_tells_after_how_many_seeds_a_test_decided() -> None:
    looked = replace(BENCHMARK, most_seeds=8)
    worse = rows({"post-norm": [60.0, 61.1, 60.4, 59.9, 65.0]})
    verdicts = judge(looked, [*BASE, *worse, *rows({"deepnorm": [70.1, 70.9, 70.6]})])
    standing = verdicts.of("post-norm")
    assert standing is not None and standing.difference is not None
    assert standing.pairs == 3 and standing.difference.mean == pytest.approx(-10.0)
    table = markdown_table(verdicts)
    assert "| -10 | < 0.001 | worse (3 seeds) |" in table and "| undecided |" in table


def test_less_is_better_for_a_loss() -> None:
    losses = {"pre-norm": [2.0, 2.1, 1.9, 2.2, 2.0], "rezero": [1.0, 1.0, 1.1, 0.9, 1.2]}
    verdicts = judge(BENCHMARK, rows(losses, score="heldout_loss"), score="heldout_loss")
    assert verdicts.standings[0].variant == "rezero" and verdicts.standings[0].verdict == "better"


def test_a_lost_run_is_worse_than_any_number() -> None:
    verdicts = judge(BENCHMARK, [*BASE, *rows({"rezero": [90.0, 91.0, None, None, None]})])
    standing = verdicts.of("rezero")
    assert standing is not None and standing.lost == 3 and standing.verdict != "better"
    lost = [replace(row, error="no such quirk") for row in rows({"rezero": [None] * 5})]
    unequal = [replace(row, error="it answers differently after loading") for row in rows({"rezero": [90.0] * 5})]
    assert judge(BENCHMARK, [*BASE, *unequal]).of("rezero").verdict == "failed"  # type: ignore[union-attr]
    infinite = judge(BENCHMARK, [*BASE, *rows({"rezero": [90.0, 91.0, math.inf, math.inf, 92.0]})]).of("rezero")
    assert infinite is not None and infinite.lost == 2
    verdicts = judge(BENCHMARK, [*BASE, *lost])
    failed = verdicts.of("rezero")
    assert failed is not None and failed.verdict == "failed"
    assert "- `rezero` failed: no such quirk." in description(verdicts)


@pytest.mark.parametrize("change", [{"data": "f" * 64}, {"version": BENCHMARK.version + 1}, {"condition": "other"}])
def test_other_data_versions_and_conditions_are_never_mixed(change: dict[str, object]) -> None:
    other = [replace(row, **change) for row in rows({"rezero": [10.0] * 5})]  # type: ignore[arg-type]
    assert judge(BENCHMARK, [*BASE, *other]).of("rezero") is None


def test_what_was_never_recorded_is_no_column_and_no_baseline() -> None:
    with pytest.raises(UnknownNameError, match="unknown column 'blue' .* did you mean 'bleu'"):
        judge(BENCHMARK, BASE, score="blue")
    with pytest.raises(UnknownNameError, match="unknown baseline 'prenorm'.* did you mean 'pre-norm'"):
        judge(BENCHMARK, BASE, baseline="prenorm")
    assert judge(BENCHMARK, [], score="blue").standings == []


def test_the_pareto_front_is_what_none_beats() -> None:
    costs = {("pre-norm", 70.0): 2.0, ("post-norm", 60.0): 1.0, ("rezero", 65.0): 3.0}
    made = [row for (name, score), cost in costs.items() for row in rows({name: [score] * 2}, training_flops=cost)]
    verdicts = judge(BENCHMARK, made)
    assert [one.variant for one in front(verdicts, "training_flops")] == ["post-norm", "pre-norm"]
    assert "`rezero`" not in description(verdicts).split("Pareto")[1].split("\n")[0]
    tied = judge(BENCHMARK, [*made, *rows({"normformer": [70.0, 70.0]}, training_flops=2.0)])
    assert [one.variant for one in front(tied, "training_flops")] == ["post-norm", "pre-norm", "normformer"]
    diverged = judge(BENCHMARK, [*made, *rows({"deepnorm": [90.0, None]}, training_flops=0.5)])
    assert [one.variant for one in front(diverged, "training_flops")] == ["post-norm", "pre-norm"]


def test_tables_hold_every_variant_and_name_missing_ones() -> None:
    verdicts = judge(BENCHMARK, [*BASE, *rows({"rezero": [70.1, 70.9, 70.6, 69.7, 70.3]})])
    table = markdown_table(verdicts)
    assert table.count("\n") == 3 and "`rezero`" in table and "within noise" in table
    assert "Not recorded yet: `post-norm`, `deepnorm`" in description(verdicts)


def test_a_best_learning_rate_at_the_edge_of_what_was_tried_is_marked() -> None:
    """Another one might change the verdict. Of two values that were tried, each is at an edge."""
    rates = {"pre-norm": 3e-3, "rezero": 1e-2, "deepnorm": 1e-3}
    settings = {name: {"learning_rate": rate, "weight_decay": 0.1} for name, rate in rates.items()}
    made = [row for name, own in settings.items() for row in rows({name: [70.0, 71.0]}, settings=own)]
    assert judge(BENCHMARK, made).at_the_edge() == {"learning_rate": {"rezero": 1e-2, "deepnorm": 1e-3}}
    words = description(judge(BENCHMARK, made))
    assert "at the edge of what was tried, so perhaps better beyond it: `rezero` (0.01)" in words
    two = replace(BENCHMARK, compare={**BENCHMARK.compare, "sweep": {"learning_rate": [1e-3, 1e-2]}})
    assert judge(two, made).at_the_edge() == {} == judge(BENCHMARK, BASE).at_the_edge()
    short = replace(BENCHMARK, compare={**BENCHMARK.compare, "sweep": {"lr": [1e-3, 3e-3, 1e-2]}})
    assert judge(short, made).at_the_edge() == judge(BENCHMARK, made).at_the_edge()
    words = replace(BENCHMARK, compare={**BENCHMARK.compare, "sweep": {"optim": ["adamw", "lion", "muon"]}})
    assert judge(words, [replace(row, settings={"optim": "adamw"}) for row in made]).at_the_edge() == {}


def test_published_numbers_are_next_to_ours() -> None:
    char_lm = benchmarks()["char-lm"]
    condition = char_lm.anchors[0].condition
    for loss, words in ((1.885, ", within 0.02 of it"), (2.5, "NOT within 0.02")):
        made = made_rows(char_lm, {"gpt2-style": [loss] * 3}, condition)
        assert words in anchors(char_lm, {condition: judge(char_lm, made, condition)})


def test_an_interval_excludes_what_was_published_or_not() -> None:
    """Student's interval, as the standard table has it for four degrees of freedom; averaged seed by seed."""
    mad = find_benchmark("mad-memorization")
    conditions = list(mad.conditions)
    scores = [84.0, 85.0, 86.0, 85.5, 84.5]
    made = [
        row
        for place, condition in enumerate(conditions)
        for row in made_rows(mad, {"llama-style": [score + place - 2.5 for score in scores]}, condition)
    ]

    def text(rows: list[Row]) -> str:
        return anchors(mad, {name: judge(mad, rows, name) for name in conditions})

    reach = 2.7764 * statistics.stdev(scores) / 5**0.5
    assert f"the interval of 95 % for the mean, {85 - reach:.4g} to {85 + reach:.4g}, does not exclude it" in text(made)
    higher = [replace(row, values={"symbol_accuracy": row.values["symbol_accuracy"] + 2}) for row in made]
    assert "within 5 of it" in text(higher) and ", excludes it" in text(higher)
    first = [row for row in made if row.seed == 0]
    assert "interval" not in text(first), "one seed has none"
    assert "not recorded yet" in text(first[:5]), "no seed has all conditions"


@pytest.mark.parametrize(
    ("value", "room"), [(94.1, (35.1, 100)), (99.8, (97.8, 100)), (5.0, (0, 55)), (90.9, (0, 100))]
)
def test_a_published_average_leaves_room_for_each_of_its_scores(value: float, room: tuple[float, float]) -> None:
    """Eleven scores of at most 100 average to it just where this one is within the room, by trial."""
    anchor = Anchor("llama-style", value, "s", averaged_over=11)
    assert anchor.room == pytest.approx(room, abs=0.11)
    for score in np.linspace(0, 100, 401):
        others = (11 * value - score) / 10
        assert (0 <= others <= 100) == (anchor.room[0] <= score <= anchor.room[1])
    assert Anchor("llama-style", value, "s", tolerance=1).room == (value, value)


@pytest.mark.parametrize(("scores", "word"), [([30, 31, 32], "excludes"), ([33, 35, 37], "does not exclude")])
def test_one_of_the_averaged_scores_may_exclude_the_average(scores: list[float], word: str) -> None:
    one = replace(find_benchmark("mad"), conditions={"": {}})
    one = replace(one, anchors=[Anchor("llama-style", 94.1, "s", averaged_over=11)])
    text = anchors(one, {"": judge(one, made_rows(one, {"llama-style": scores}), "")})
    assert "here, where an average over 11 scores, this one included, needs 35.1 to 100; the interval" in text
    assert f", {word} it" in text


def test_the_pages_are_what_their_command_writes() -> None:
    pages = RESULTS.pages()
    assert {path: path.read_text(encoding="utf-8") for path in pages} == pages
    assert {*RESULTS.PAGES.iterdir(), *RESULTS.PICTURES.iterdir()} <= {*pages}
    navigation = (RESULTS.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"- results/{name}.md\n" in navigation for name in benchmarks())
    found = [RESULTS.Recorded.of(one) for one in benchmarks().values()]
    for page, (*headings, empty) in RESULTS.FRONTS.items():
        assert RESULTS.front_table(found, headings, empty) in pages[page] and len(pages[page].splitlines()) < 150


@pytest.mark.parametrize("at_edge", ["post-norm", "pre-norm"])
def test_no_verdict_rests_on_an_edge(at_edge: str) -> None:
    both = [*BASE, *rows({"post-norm": [60.0, 61.5, 60.1, 60.3, 59.9]})]
    tried = {"learning_rate": [0.001, 0.003, 0.01]}
    for rate, word in ((0.003, "worse"), (0.01, "undecided by edge")):
        rates = [rate if one.variant == at_edge else 0.003 for one in both]
        settings = [{"learning_rate": own, "tried": tried} for own in rates]
        settings[both.index(BASE[0])] = settings[len(BASE)] = {}  # as of a run that was lost, or of an older version
        swept = [replace(one, settings=own) for one, own in zip(both, settings, strict=True)]
        verdicts = judge(BENCHMARK, swept)
        standing = verdicts.of("post-norm")
        assert standing is not None and standing.verdict == word
    assert "Undecided, as a swept value is best at the edge of what was tried: `post-norm`" in description(verdicts)


def test_a_verdict_with_unequal_decay_is_marked(tmp_path: Path) -> None:
    names = ["gpt2-style", "gpt2-style:norm=rmsnorm", "gpt2-style:hidden_act=relu"]
    one, at = find_benchmark("char-lm"), "500 steps"
    one = replace(one, compare={**one.compare, "arguments": {"decay": "transformers"}})
    session = BenchmarkRun(one, tmp_path, None, None, {}, False, print)
    decayed = {name: session.decayed(at, name) for name in names}
    made = [row for name in names for row in made_rows(one, {name: [2.0, 3, 4]}, at, settings=decayed[name])]
    verdicts = judge(one, made, at)
    assert [bool(verdicts.unequal_decay(name)) for name in names] == [False, True, False]
    equal = replace(one, compare={**one.compare, "arguments": {"decay": "matrices"}})
    assert not replace(session, benchmark=equal).decayed(at, names[1])
    assert "Weight decay is not equal for `gpt2-style:norm=rmsnorm`" in description(verdicts)
