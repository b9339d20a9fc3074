"""Seeds are added until a verdict is there, and all looks together are wrong as seldom as one."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from comparison.in_process import GENERATION, TASK, TINY, run_here
from synthetic_comparison import made_up, made_up_run

import zoo
from zoo.base.errors import ConfigError, OutputExistsError
from zoo.comparison import summarize
from zoo.comparison.display.documents import to_latex, to_markdown
from zoo.comparison.display.findings import sentences
from zoo.comparison.display.report.page import to_html
from zoo.comparison.pipeline import with_more_seeds
from zoo.comparison.request.request import Request
from zoo.comparison.results.design import Design, increment, judged, levels, spent
from zoo.comparison.results.distributions import students_within
from zoo.comparison.results.statistics import DECIDED, EQUAL, SAME, UNDECIDED


@pytest.mark.parametrize("error, limit", [(0.05, 16), (0.05, 5), (0.005, 12)])
def test_all_looks_together_spend_the_error(error, limit):
    """Against a simulation of sums and squares, which knows nothing of the recursion."""
    noise = np.random.default_rng(1).standard_normal((150_000, limit))
    alarms, below = (np.zeros(len(noise), bool) for _ in range(2))
    for count, two, one in zip(range(3, limit + 1), levels(error, limit, 2), levels(error, limit, 1), strict=True):
        seen = noise[:, :count]
        t = seen.mean(1) / seen.std(1, ddof=1) * math.sqrt(count)
        alarms |= 1 - students_within(np.abs(t), count - 1) <= two
        below |= (1 + students_within(t, count - 1)) / 2 <= one
        allowed, deviation = error * spent(count, limit), math.sqrt(error / len(noise))
        assert alarms.mean() == pytest.approx(allowed, abs=4 * deviation)
        assert below.mean() == pytest.approx(allowed, abs=4 * deviation)
    assert sum(increment(error, count, limit) for count in range(3, limit + 1)) == pytest.approx(error)


def test_a_variant_is_decided_by_its_first_look_that_decides():
    luck = np.random.default_rng(0).normal(scale=0.1, size=8)
    base = dict(enumerate(30 + luck))
    own = {seed: score + 5 + 0.01 * seed for seed, score in base.items()}
    (found, word), (longer, again) = (
        judged({"a": base, "b": dict(list(own.items())[:count])}, "a", 1, Design(limit=8))["b"] for count in (3, 8)
    )
    assert word == again == "better" and found == longer and found.pairs == 3
    late = judged({"a": base, "b": {seed: base[seed] + 5 * (-1) ** seed for seed in base}}, "a", 1, Design(limit=8))
    assert late["b"][1] == UNDECIDED and late["b"][0].pairs == 8


def test_the_share_of_a_decided_variant_goes_to_the_others_only_without_a_margin():
    rows = [np.zeros(3), np.array([5.0, 5.001, 5.002]), np.array([0.8, 1.0, 1.15])]
    scores = {f"v{place}": dict(enumerate(row)) for place, row in enumerate(rows)}
    alone = judged({name: scores[name] for name in ("v0", "v2")}, "v0", 1, Design(limit=5))["v2"][0]
    both = judged(scores, "v0", 1, Design(limit=5))
    assert both["v1"][1] == "better" and both["v2"][0].adjusted == pytest.approx(alone.adjusted)
    with_margin = judged(scores, "v0", 1, Design(0.5, 5))["v2"][0]
    assert with_margin.adjusted > alone.adjusted


def test_sums_in_another_order_are_no_difference():
    base = {0: 0.1 + 0.2 + 0.3, 1: 0.3 + 0.6 + 0.9, 2: 0.1 + 0.7 + 0.2 + 0.4}
    own = {seed: score + k * math.ulp(score) for k, (seed, score) in enumerate(base.items(), 1)}
    difference, word = judged({"a": base, "b": own}, "a", 1)["b"]
    assert word == EQUAL and difference.mean == 0.0


@pytest.mark.parametrize("limit", [None, 8])
def test_a_variant_within_the_margin_is_the_same(limit):
    luck = np.random.default_rng(0)
    base = luck.normal(30, 1, 8)
    scores = {"a": base, "b": base + luck.normal(scale=0.01, size=8), "c": base, "d": base + luck.normal(5, 0.01, 8)}
    found = judged({name: dict(enumerate(row)) for name, row in scores.items()}, "a", 1, Design(1.0, limit))
    assert [found[name][1] for name in "bd"] == [SAME, "better"]
    low, high = found["b"][0].interval
    assert -1.0 < low < high < 1.0
    assert found["c"][1] == (SAME if limit is None else UNDECIDED)  # eight tosses of a coin; a look spends a part


def test_lost_runs_are_tested_by_signs_at_every_look():
    base = dict(enumerate([30.0] * 16))
    scores = {"a": base, "b": {seed: None if seed < 12 else 31.0 for seed in base}, "c": dict.fromkeys(base)}
    found = judged(scores, "a", 1, Design(limit=16))
    assert found["b"][1] == UNDECIDED and found["c"] == (None, "untested")


def decided_by(means, noise=0.5, **design):
    """Begin with three seeds and add what is undecided; the runs that were asked for."""
    comparison = made_up(means, seeds=3, noise=noise, design=asdict(Design(**design)))
    asked, luck = [], np.random.default_rng(5)

    def run(names, seed):
        asked.append((seed, list(names)))
        return [made_up_run(name, seed, means[name][0] + noise * luck.standard_normal()) for name in names]

    return with_more_seeds(comparison, run, lambda sentence: None), asked


def test_seeds_are_added_to_undecided_variants_and_the_baseline_alone():
    means = {"a": (30.0, 1.0), "far": (60.0, 1.0), "near": (30.1, 1.0)}
    comparison, asked = decided_by(means, limit=6)
    summary = summarize(comparison)
    words = {row.name: row.verdict for row in summary.rows}
    assert words == {"a": "baseline", "far": "better", "near": UNDECIDED}
    assert all("near" in names and names[0] == "a" for _, names in asked)
    assert [seed for seed, _ in asked] == [3, 4, 5] and comparison.seeds == list(range(6))
    seeds = {row.name: [run.seed for run in row.runs] for row in summary.rows}
    assert seeds["near"] == seeds["a"] == list(range(6)) and len(seeds["far"]) < 6
    shown = " ".join(sentences(summary))
    assert "near against a is undecided" in shown and "would have been found" in shown
    pairs = sorted(row.difference.pairs for row in summary.rows[1:])
    assert pairs[0] < 6 and f"Tested by paired t-tests of BLEU over {pairs[0]} to 6 seeds" in shown
    assert f"Bootstrap intervals of {len(seeds['far'])} seeds" in shown
    assert "at most 6; after 4 rounds 5.0 % of the error of 5.0 % is spent" in shown
    assert with_more_seeds(comparison, None, None) is comparison  # at the limit
    counts = f"{len(seeds['far'])} to 6 seeds"
    assert all(counts in page for page in (to_markdown(summary), to_latex(summary), to_html(summary)))
    assert "up to 6 seeds (Lan and DeMets)" in to_latex(summary)
    assert f"each the mean of {counts} in a band" in to_html(summary)


def test_signs_are_mentioned_only_where_they_are_tested():
    made = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=5)
    other_logits, lost = {"error": "loaded with other logits"}, {"error": "lost", "report": None}
    for changes, shown in (({}, False), (other_logits, True), (lost, True)):
        runs = [*made.runs[:-1], replace(made.runs[-1], **changes)]
        summary = summarize(replace(made, runs=runs))
        assert ("signs are tested, not sizes" in " ".join(sentences(summary))) == shown
        assert summary.rows[1].difference.is_by_size != shown


def test_a_margin_ends_it_where_nothing_differs():
    comparison, asked = decided_by({"a": (30.0, 1.0), "b": (30.0, 1.0)}, noise=0.1, margin=1.0, limit=12)
    assert summarize(comparison).rows[1].verdict == SAME and len(asked) < 5
    assert "b is the same as a within ±1.00" in " ".join(sentences(summarize(comparison)))


def test_a_design_is_settled_before_and_checked(tmp_path):
    names = ["pre-norm", "post-norm"]
    assert Request(names=names).design is None and Request(names=names, decide=True).all_seeds == [0, 1, 2]
    assert Request(names=names, decide=True, margin=0.1).design == {"margin": 0.1, "limit": 16}
    for wrong, message in [
        ({"margin": 0.0}, "margin=0.0"),
        ({"margin": math.nan}, "margin=nan"),
        ({"most_seeds": 5}, "without decide"),
        ({"decide": True, "most_seeds": 2}, "valid: 3, with which it begins, to 64"),
        ({"decide": True, "most_seeds": 65}, "to 64"),
        ({"decide": True, "seeds": 20}, "valid: 20"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Request(names=names, task="copy", **wrong).check()


def test_a_comparison_decides_and_goes_on_where_it_was(tmp_path, monkeypatch):
    run_here(monkeypatch)
    given = {"task": TASK, "settings": TINY, "generation": GENERATION, "output_dir": tmp_path / "o", "progress": False}
    done = []

    def count(number, total, label):
        done.append(label)

    def compare(**more):
        names = ["pre-norm", "pre-norm:num_hidden_layers=1,norm=rmsnorm"]
        return zoo.compare(names, budget="steps=1", on_run=count, **given, **more)

    first = compare(decide=True, most_seeds=4)
    words = [row.verdict for row in summarize(first).rows]
    assert first.seeds == ([0, 1, 2] if words[1] in DECIDED else [0, 1, 2, 3]) and len(done) == len(first.runs)
    assert "--decide" in first.command and "--most-seeds" in first.command and first.design["limit"] == 4
    again = compare(decide=True, most_seeds=4)
    assert len(done) == len(first.runs) and again == replace(first, environment=again.environment)
    with pytest.raises(OutputExistsError, match="design"):
        compare(decide=True, most_seeds=4, margin=0.5)
