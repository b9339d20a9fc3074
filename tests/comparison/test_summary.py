"""Summaries of a comparison, as numbers and as a table on a terminal."""

import csv
import io
import math
from dataclasses import replace

import pytest
from rich.console import Console
from synthetic_comparison import made_up, made_up_run

from zoo.base.errors import UnknownNameError
from zoo.comparison import ReloadCheck, Run, render
from zoo.comparison.display.documents import to_latex, to_markdown, write_files
from zoo.comparison.display.findings import headline, sentences
from zoo.comparison.display.formatting import mean_and_spread, records, signed, to_csv
from zoo.comparison.display.report.charts import Point, joined, pareto, points_of
from zoo.comparison.display.report.page import cell
from zoo.comparison.display.wide_table import folded
from zoo.comparison.results.metrics import metrics_of
from zoo.comparison.results.statistics import ERROR, Measurements
from zoo.comparison.results.summary import summarize
from zoo.comparison.results.units import duration, large, memory, milliseconds, number, p_value, percent


def test_numbers_are_written_for_people():
    assert [large(value) for value in (0, 999, 1000, 9994, 1_904_616, 99_960, 1.5e12)] == [
        *("0", "999", "1.00 k", "9.99 k", "1.90 M", "100 k", "1.50 T")
    ]
    assert [memory(value) for value in (2048, 1.5 * 2**20, 9.96 * 2**20, 57 * 2**20, 20 * 2**30)] == [
        *("2 KiB", "1.5 MiB", "10 MiB", "57 MiB", "20.0 GiB")
    ]
    assert (milliseconds(0.00447), percent(0.175)) == ("4.47 ms", "17.5 %")
    assert [p_value(p) for p in (0.0004, 0.0421, 0.0496, 0.05, 0.05004, 0.3)] == [
        *("< 0.001", "0.042", "0.0496", "0.050", "0.050", "0.300")
    ]
    assert all((float(p_value(p)) < ERROR) == (p < ERROR) for p in (0.04951, 0.0499999, math.nextafter(0.05, 0), 0.051))
    assert [duration(value) for value in (41.26, 125, 7260)] == ["41.3 s", "2.1 min", "2.0 h"]
    assert [signed(number(2), value) for value in (-1.5, 0.25, -0.004, -0.006)] == ["−1.50", "+0.25", "+0.00", "−0.01"]
    assert mean_and_spread(number(1), Measurements([1.0, 3.0])) == "2.0 ± 1.4"
    assert mean_and_spread(milliseconds, Measurements([0.001, 0.003])) == "2.00 ± 1.41 ms"
    assert mean_and_spread(memory, Measurements([455 * 2**20, 457 * 2**20])) == "456 ± 1 MiB"
    assert mean_and_spread(large, Measurements([1_900_000, 1_901_000])) == "1.90 M"
    assert mean_and_spread(number(2), Measurements([0.0, 0.0, 0.02])) == "0.01 ± 0.01", "not in units of a rounded mean"
    assert mean_and_spread(number(1), Measurements([-3.0, 3.0])) == "0.0 ± 4.2"
    assert mean_and_spread(large, Measurements([7, 7])) == mean_and_spread(large, Measurements([7])) == "7"


def test_variants_are_judged_seed_by_seed():
    summary = summarize(made_up({"a": (30.0, 1.0), "b": (36.0, 1.0), "c": (30.0, 1.0), "d": (24.0, 1.0)}, seeds=5))
    rows = {row.name: row for row in summary.rows}
    assert list(rows) == list("abcd")
    assert [row.verdict for row in rows.values()] == ["baseline", "better", "within noise", "worse"]
    base = [run.report["scores"]["bleu"]["value"] for run in rows["a"].runs]
    own = [run.report["scores"]["bleu"]["value"] for run in rows["b"].runs]
    differences = [one - other for one, other in zip(own, base, strict=True)]
    assert rows["b"].difference.mean == pytest.approx(sum(differences) / 5)
    assert summary.best is rows["b"] and summary.main.key == "bleu"
    # What is common to a seed is no noise: differences spread less than the scores do.
    assert rows["b"].difference.deviation < rows["b"].samples["bleu"].deviation
    words = " ".join(sentences(summary))
    assert "b is better than a: +" in words and "c does not differ from a beyond noise" in words
    assert "corrected for 3 variants after Holm" in words and "d is worse than a: −" in words
    assert headline(summary) == "Of 3 variants against a: 1 better, 1 worse, 1 within noise."


def test_equal_numbers_are_called_equal():
    pair = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    made = made_up(pair, seeds=3)
    first = made.runs_of("a")
    runs = [replace(run, report={**run.report, "scores": first[run.seed].report["scores"]}) for run in made.runs]
    summary = summarize(replace(made, runs=runs))
    assert summary.rows[1].verdict == "equal"
    assert next(iter(sentences(summary))) == "b and a have the same BLEU with each of 3 seeds."
    alone = " ".join(sentences(summarize(replace(made, runs=[run for run in runs if run.seed == 0], seeds=[0]))))
    assert "b has the same BLEU as a; fewer than three seeds test nothing." in alone


def test_less_is_better_for_scores_marked_so():
    comparison = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=5)
    for run in comparison.runs:
        run.report["scores"]["bleu"] |= {"name": "Perplexity", "higher_is_better": False}
    summary = summarize(comparison)
    assert [row.verdict for row in summary.rows] == ["baseline", "worse"] and summary.best.name == "a"


def test_what_is_missing_is_not_made_up():
    comparison = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0), "c": (31.0, 1.0)}, seeds=3)
    runs = comparison.runs
    broken = Run("b", "b", seed=1, error="no number")
    runs = [*runs[:4], broken, runs[5], *(Run("c", "c", seed=seed, error="gone") for seed in range(3))]
    infinite = made_up_run("b", 2, 36.0)
    infinite.report["scores"]["bleu"]["value"] = math.inf
    summary = summarize(replace(comparison, runs=runs))
    b, c = summary.rows[1:]
    assert (b.difference.pairs, len(b.finished), len(b.failed), c.verdict) == (2, 2, 1, "failed")
    words = " ".join(sentences(summary))
    assert "1 run of 3 failed" in words and "c failed with every seed" in words
    # A score that is no number pairs with nothing, and one pair is not tested.
    left = summarize(replace(comparison, runs=[*runs[:5], infinite, *runs[6:]])).rows[1]
    assert (left.difference.pairs, left.verdict) == (1, "untested")
    assert headline(summary) == "Of 2 variants against a: 1 within noise, 1 failed."
    single = summarize(replace(comparison, runs=[*runs[:4], broken, replace(broken, seed=2)]))
    assert "runs of both with a single seed test nothing. 2 runs of 3 failed." in " ".join(sentences(single))
    failed = summarize(replace(comparison, runs=[*runs[:3], *(replace(broken, seed=seed) for seed in range(3))]))
    assert headline(failed) == "Of 2 variants against a: 2 failed."
    nothing = summarize(replace(comparison, runs=[Run(name, name, error="gone") for name in "abc"]))
    assert nothing.main is nothing.best is None and list(sentences(nothing)) == [headline(nothing)]
    unmeasured = replace(comparison, runs=[replace(run, costs=None) for run in comparison.runs])
    assert "flops_per_token" not in [column.key for column in metrics_of(unmeasured)]


def test_a_mean_of_the_runs_that_are_left_is_never_the_best():
    """The one lucky run of a variant with others that diverged beats nothing, in the table and on the front."""
    comparison = made_up({"a": (30.0, 0.1), "b": (36.0, 0.1), "c": (31.0, 0.1)}, seeds=3)
    lost = [Run("b", "b", seed=seed, error="diverged") for seed in (1, 2)]
    summary = summarize(replace(comparison, runs=[*comparison.runs[:4], *lost, *comparison.runs[6:]]))
    main, cost = summary.main, column_named("parameters")
    assert summary.best.name == "c" and [row.name for row in summary.ranked(main)] == ["a", "c"]
    assert [cell(summary, main, row)["is_best"] for row in summary.rows] == [False, False, True]
    assert "b" not in [point.name for point in pareto(points_of(summary, main, cost), main, cost)]


def test_a_run_that_answers_otherwise_after_loading_is_lost():
    """As in the rows of benchmarks: a saved model with another score is no result."""
    comparison = made_up({"a": (30.0, 0.1), "b": (36.0, 0.1)}, seeds=5)
    broken = [replace(run, error="answers differently") if run.name == "b" else run for run in comparison.runs]
    summary = summarize(replace(comparison, runs=[*broken[:6], *comparison.runs[6:]]))
    (row,) = summary.rows[1:]
    assert (row.difference.pairs, row.lost(summary.main), len(row.failed)) == (4, 1, 1)
    assert summarize(replace(comparison, runs=broken)).rows[1].verdict == "failed"


def test_one_seed_tests_nothing():
    summary = summarize(made_up(seeds=1))
    assert {row.verdict for row in summary.rows} == {"baseline", "untested"}
    assert "Fewer than three seeds" in headline(summary)
    alone = summarize(made_up({"vanilla": (30.0, 1.0)}, seeds=3))
    assert "is the only variant" in headline(alone) and list(sentences(alone)) == []


def test_the_pareto_front_is_what_nothing_beats():
    main, cost, speed = (column_named(key) for key in ("bleu", "parameters", "train_tokens_per_second"))
    named = [("cheap", 1.0, 10.0), ("good", 3.0, 30.0), ("beaten", 3.0, 20.0)]
    named += [("alike", 1.0, 10.0), ("dear", 9.0, 29.0)]
    points = [Point(place, name, *at, 0.0, "") for place, (name, *at) in enumerate(named)]
    assert [point.name for point in pareto(points, main, cost)] == ["cheap", "alike", "good"]
    assert [point.name for point in pareto(points, main, speed)] == ["good", "dear"]


def column_named(key):
    return next(column for column in metrics_of(made_up(seeds=1)) if column.key == key)


def test_curves_are_joined_step_by_step():
    runs = [
        Run("a", "a", curve=[{"step": step, "seconds": step * speed, "loss": loss} for step, loss in entries])
        for speed, entries in ((1.0, [(1, 5.0), (2, 3.0), (3, 2.0)]), (3.0, [(1, 7.0), (3, 1.0)]))
    ]
    assert list(joined(runs, "loss", "seconds")) == [(2.0, 5.0, 6.0, 7.0), (6.0, 1.0, 1.5, 2.0)]
    assert list(joined(runs, "heldout_loss", "seconds")) == []
    # The last evaluation on the way, and the end; a clock ends runs at different steps.
    logs = ([(1, 5.0), (2, 3.0), (2, 2.5)], [(1, 7.0)])
    ended = [Run("a", "a", curve=[{"step": at, "heldout_loss": loss} for at, loss in one]) for one in logs]
    assert list(joined(ended, "heldout_loss", "step")) == [(1.0, 5.0, 6.0, 7.0)]
    assert list(joined(ended[:1], "heldout_loss", "step"))[-1] == (2.0, 2.5, 2.5, 2.5)


def test_a_record_a_run():
    comparison = made_up(seeds=2)
    failed = Run("vanilla", "vanilla", seed=1, error='a "quoted", reason')
    summary = summarize(replace(comparison, runs=[comparison.runs[0], failed, *comparison.runs[2:]]))
    read = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert len(read) == len(comparison.runs) == len(records(summary))
    assert (read[1]["name"], read[1]["error"], read[1]["bleu"]) == ("vanilla", 'a "quoted", reason', "")
    assert float(read[2]["bleu"]) == comparison.runs[2].report["scores"]["bleu"]["value"]
    assert int(read[2]["peak_memory"]) == comparison.runs[2].report["peak_memory"]


def test_files_for_documents(tmp_path):
    comparison = made_up({"vanilla": (30.0, 1.0), "pre|norm:x=1_0&%": (36.0, 1.0)}, seeds=3)
    summary = summarize(comparison)
    markdown = to_markdown(summary).split("## Fairness")[0].splitlines()
    header, rule, *rows = [line for line in markdown if line.startswith("|")]
    assert len(rows) == 2
    assert {line.count("|") - line.count("\\|") for line in (header, rule, *rows)} == {header.count("|")}
    assert "| pre\\|norm:x=1_0&% |" in rows[1] and "better" in rows[1]
    latex = to_latex(summary)
    assert r"pre|norm:x=1\_0\&\% &" in latex and r"$\pm$" in latex and "±" not in latex
    body = [line for line in latex.splitlines() if line.endswith(r"\\")]
    columns = latex.split(r"\begin{tabular}{")[1].split("}")[0]
    assert {line.replace(r"\&", "").count("&") for line in body} == {len(columns) - 1}
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert latex.count(rule) == 1
    after = latex.split("\\end{table}\n")[1].splitlines()
    assert len(after) > 8 and all(line.startswith("% ") for line in after), "nothing below the table is set"
    assert "by paired $t$-tests" in latex
    for fewer, words in ((1, "One seed"), (2, "deviation over 2 seeds")):
        caption = to_latex(summarize(made_up(seeds=fewer))).splitlines()[3]
        assert words in caption and caption.endswith("are not tested.}")
    written = write_files(comparison, tmp_path)
    assert [file.name for file in written] == ["results.csv", "results.md", "results.tex", "report.html"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in written)


def test_unequal_use_of_the_hardware_is_stated():
    comparison = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3)
    assert not any("MFU" in sentence for sentence in sentences(summarize(comparison)))
    for run in comparison.runs:
        run.costs["model_flops_utilization"] = {"a": 0.05, "b": 0.3}[run.name]
    (shown,) = (sentence for sentence in sentences(summarize(comparison)) if "MFU" in sentence)
    assert "from 5.0 % of a to 30.0 % of b: equal FLOPs are not equal time" in shown


def test_runs_of_unequal_machines_are_stated():
    """A comparison that goes on elsewhere, or with more runs at a time, has speeds of unequal means."""
    comparison = made_up(seeds=2)
    here = [replace(run, circumstances={"machine": "a CPU", "threads": 2}) for run in comparison.runs]
    there = replace(here[-1], circumstances={"machine": "a CPU", "threads": 1})
    found = sentences(summarize(replace(comparison, runs=[*here[:-1], there])))
    assert any("unequal means (a CPU, 1 thread; a CPU, 2 threads)" in one for one in found)
    assert not any("unequal means" in one for one in sentences(summarize(replace(comparison, runs=here))))


def test_the_latex_table_has_the_columns_that_are_chosen(tmp_path):
    comparison = made_up(seeds=3)
    summary = summarize(comparison)
    header = to_latex(summary).splitlines()[6]
    assert header.count("&") == 7, "eight columns fit on a page"
    write_files(comparison, tmp_path, tex_columns=["heldout_loss", "peak_memory"])
    assert "    Variant & Held-out loss & Peak memory" in (tmp_path / "results.tex").read_text()
    with pytest.raises(UnknownNameError, match=r"'peak_memori' of results.tex.*did you mean 'peak_memory'"):
        to_latex(summary, ["peak_memori"])


LONG = "pre-norm:position=rotary,num_key_value_heads=2"


def shown(comparison, width: int = 120) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(render(comparison))
    return capture.get()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("seeds", [1, 5])
def test_no_column_is_folded_or_cut(width, seeds):
    comparison = made_up(seeds=seeds)
    tables, _, rest = shown(comparison, width).partition("\n\npre-norm ")
    assert rest
    lines = tables.splitlines()
    assert max(map(len, lines)) <= width and "…" not in tables
    heads = [place for place, line in enumerate(lines) if line.startswith("Variant ")]
    assert len(heads) == {80: 3 if seeds == 1 else 4, 120: 2}[width]
    ends = [*heads[1:], len(lines)]
    for start, end in zip(heads, ends, strict=True):
        block = lines[start + 1 : end]
        for name in comparison.names:  # each has its line in every table, with a number in every column
            last = folded(name, max(24, width // 3)).splitlines()[-1]
            (row,) = [line for line in block if line.startswith(f"{last} ")]
            assert len(row.rstrip()) == len(lines[start].rstrip()) or row.endswith("identical ")


def test_the_table_has_every_column():
    text = shown(made_up(seeds=3), 300)
    reported = (" ± ", "+3.39", "0.023", "within noise", "better", "worse", "baseline", "1.90 M", "1.56 M", "470 MiB")
    for part in (*reported, "29.1", "7.82 ms", "217", "identical", "corrected interval"):
        assert part in text
    assert "BLEU: nrefs:1|case:mixed" in text and "8 epochs, seeds 0, 1, 2" in text
    assert "source" in text and "reference" in text and "Ela leu o livro ontem." in text
    one = shown(made_up(seeds=1), 300)
    assert one.count("Fewer than three seeds: differences") == 1 and " ± " not in one and "8 epochs, seed 0;" in one


def test_the_table_survives_failures():
    only = made_up({"vanilla": (30.0, 1.0)}, seeds=1)
    nothing = replace(only, runs=[Run("vanilla", "vanilla", error="killed by SIGKILL")])
    assert "vanilla failed: killed by SIGKILL" in shown(nothing) and "nothing to compare" in shown(nothing)
    two = made_up({"a": (30.0, 1.0), "b": (31.0, 1.0)}, seeds=2)
    runs = [*two.runs[:2], two.runs[2], Run("b", "b", seed=1, error="out of luck")]
    text = shown(replace(two, runs=runs))
    assert "b, seed 1 failed: out of luck" in text and "1 of 2" in text and "identical" in text
    changed = replace(two.runs[0], reload=ReloadCheck("AutoModel", 0.0, outputs_equal=False, equal=False))
    assert " differs" in shown(replace(two, runs=[changed, *two.runs[2:]])), "its texts, with equal logits"
    unloaded = made_up_run("a", 0, 30.0, reload=None, error="could not be loaded")
    assert "a, seed 0 failed: could not be loaded" in shown(replace(two, runs=[unloaded, *two.runs[1:]]))


def test_long_outputs_are_cut():
    comparison = made_up({"a": (30.0, 1.0)}, seeds=1)
    run = replace(comparison.runs[0], outputs=["x" * 1000] * 6)
    assert "x" * 161 not in shown(replace(comparison, runs=[run]), width=400)


def test_names_are_folded_where_a_setting_ends():
    assert folded(LONG, 30) == "pre-norm:position=rotary,\nnum_key_value_heads=2"
    assert folded(LONG, 24) == "pre-norm:\nposition=rotary,\nnum_key_value_heads=2"
    assert folded("vanilla@small+faithful", 14) == "vanilla@small\n+faithful" and folded(LONG, 99) == LONG
