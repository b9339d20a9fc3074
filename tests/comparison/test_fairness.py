"""The fairness sheet: what it holds, and that every report shows it, qualifications next to verdicts."""

import csv
import html
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_comparison import made_up

from zoo.building.builder import skeleton
from zoo.comparison import Comparison, summarize
from zoo.comparison.display.documents import to_latex, to_markdown
from zoo.comparison.display.formatting import to_csv
from zoo.comparison.display.report.page import to_html
from zoo.comparison.display.terminal import as_text
from zoo.comparison.results.fairness import decay_groups, fairness_sheet
from zoo.models.roles import parameter_roles

NAMES = dict.fromkeys(("pre-norm", "pre-norm:norm=rmsnorm", "pre-norm:norm=dyt", "normformer"), (31.0, 1.0))


def comparison(**changes: Any) -> Comparison:
    """A comparison with a sweep that ends at an edge for one variant, and another width of another by matching."""
    made = made_up(NAMES, seeds=3)
    recipe = {**made.recipe, "arguments": {"weight_decay": 0.1, "max_steps": 400, "decay": "transformers"}}
    chosen = {
        "pre-norm": {"learning_rate": 3e-3},
        "pre-norm:norm=rmsnorm": {"learning_rate": 1e-2},
        "pre-norm:norm=dyt": {"learning_rate": 3e-3},
        "normformer": {"learning_rate": 3e-3, "hidden_size": 120},
    }
    runs = [replace(run, settings=chosen[run.name]) for run in made.runs]
    tried = {"learning_rate": [1e-3, 3e-3, 1e-2]}
    sweep = {"values": tried, "seed": 0, "selected": "lowest loss", "examples": 5, "runs": []}
    return replace(made, recipe=recipe, runs=runs, sweep=sweep, match="params", **changes)


EXPECTED = {
    "pre-norm:norm=rmsnorm": ("learning_rate, 0.01, is at the edge", "weight decay is not equal: its gains decay"),
    "pre-norm:norm=dyt": ("gains and scalars decay", "deviation from its paper: Dynamic tanh starts"),
    "normformer": ("hidden_size 120 in place of 128, by matching", "deviation from its paper: The skip"),
}
"""What qualifies the verdict of each variant."""


def test_the_sheet_holds_what_a_reader_of_a_verdict_asks_for() -> None:
    sheet = fairness_sheet(comparison())
    assert sheet.shared["Weight decay"] == "0.1 on transformers"
    assert sheet.shared["Swept"] == "learning_rate 0.001 0.003 0.01; chosen with seed 0"
    assert sheet.shared["Matched"] == "parameters"
    first, last = sheet.variants["pre-norm"], sheet.variants["normformer"]
    assert first["Trained on"] == "360 k tokens, 8 epochs"
    assert first["Initial values"] == "xavier-uniform, initializer_range 0.04899"
    assert (first["Tied output"], first["Dropout"]) == ("no", "dropout 0.1")
    assert last["Sizes changed by matching"] == "hidden_size 120 in place of 128, by matching"
    assert last["Chosen by the sweep"] == "learning_rate 0.003"
    assert "gain" in sheet.variants["pre-norm:norm=rmsnorm"]["Decays"] and "gain" not in first["Decays"]
    assert not sheet.qualifications["pre-norm"]
    for name, phrases in EXPECTED.items():
        assert all(any(phrase in one for one in sheet.qualifications[name]) for phrase in phrases), name


def test_positions_above_the_tokens_qualify_a_verdict() -> None:
    made, former = comparison(), "pre-norm:norm=rmsnorm"
    name = "pre-norm:position=sinusoidal"
    runs = [replace(run, name=name if run.name == former else run.name) for run in made.runs]
    sheet = fairness_sheet(replace(made, names=[name if one == former else one for one in made.names], runs=runs))
    phrase = "positions of 0.71 are added to embeddings that start with 0.049"
    assert sheet.variants[name]["At the start"].startswith(phrase)
    assert any(one.startswith(f"its {phrase}") for one in sheet.qualifications[name])
    assert sheet.variants["pre-norm"]["At the start"] == "as usual"


def test_a_best_value_of_the_baseline_at_the_edge_qualifies_every_verdict() -> None:
    made = comparison()
    runs = [replace(run, settings={"learning_rate": 3e-3 + 7e-3 * (run.name == "pre-norm")}) for run in made.runs]
    sheet = fairness_sheet(replace(made, runs=runs))
    edge = "best learning_rate, 0.01, is at the edge of what was tried"
    assert sheet.qualifications["pre-norm"] == (f"its {edge}",)
    assert all(f"the baseline's {edge}" in own for name, own in sheet.qualifications.items() if name != "pre-norm")


def test_equal_decay_qualifies_nothing() -> None:
    made = comparison()
    recipe = {**made.recipe, "arguments": {"weight_decay": 0.1}}
    sheet = fairness_sheet(replace(made, recipe=recipe))
    assert sheet.shared["Weight decay"] == "0.1 on matrices"
    assert {own["Decays"].partition(" ")[0] for own in sheet.variants.values()} == {"matrix"}
    assert not any("weight decay" in one for own in sheet.qualifications.values() for one in own)


def test_what_decays_is_listed_in_the_order_of_the_model() -> None:
    roles = parameter_roles(skeleton("pre-norm@tiny", "seq2seq-lm"))
    assert list(decay_groups("pre-norm@tiny", "seq2seq-lm", "all")) == list(dict.fromkeys(map(str, roles.values())))


def test_what_is_swept_is_not_shared_and_qualifies_as_it_was_chosen() -> None:
    made = comparison()
    assert made.sweep is not None
    swept = {**made.sweep, "values": {"weight_decay": [0.0, 0.1], "learning_rate": [1e-3]}}
    recipe = {**made.recipe, "arguments": {"decay": "transformers", "learning_rate": 0.5}}
    for chosen in (0.0, 0.1):
        runs = [replace(run, settings={"weight_decay": chosen}) for run in made.runs]
        sheet = fairness_sheet(replace(made, recipe=recipe, runs=runs, sweep=swept))
        assert sheet.shared["Weight decay"] == "(swept) on transformers"
        assert sheet.shared["Optimiser"] == "learning_rate (swept)"
        qualified = "; ".join(sheet.qualifications["pre-norm:norm=rmsnorm"])
        assert ("weight decay is not equal: its gains decay" in qualified) == (chosen > 0)


FORMATS = {
    "html": lambda made: html.unescape(to_html(summarize(made))),
    "md": lambda made: to_markdown(summarize(made)),
    "tex": lambda made: to_latex(summarize(made)).replace("\\", ""),
    "csv": lambda made: to_csv(summarize(made)),
    "json": lambda made: json.dumps(json.loads(made.write().read_text(encoding="utf-8"))["fairness"]),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_report_shows_the_sheet_and_what_qualifies_verdicts(kind: str, tmp_path: Path) -> None:
    made = comparison(folder=tmp_path)
    page, sheet = FORMATS[kind](made), fairness_sheet(made)
    for phrases in EXPECTED.values():
        assert all(phrase in page for phrase in phrases)
    for texts in (sheet.shared, *sheet.variants.values()):
        assert all(text in page for text in texts.values())


def test_a_terminal_shows_what_qualifies_verdicts() -> None:
    page = " ".join(as_text(comparison()).split())
    assert all(phrase in page for phrases in EXPECTED.values() for phrase in phrases)


def test_a_variant_that_is_not_there_any_more_leaves_a_sheet() -> None:
    made = made_up({"pre-norm": (31.0, 1.0), "gone-style": (30.0, 1.0)}, seeds=3)
    sheet = fairness_sheet(made)
    assert "gone-style" in sheet.variants["gone-style"]["Not known here"]
    assert len(list(csv.DictReader(io.StringIO(to_csv(summarize(made)))))) == 6
