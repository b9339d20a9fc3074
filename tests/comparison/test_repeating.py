"""A recorded comparison that has been moved: its commands name the new folder, and it is repeated with its data."""

import json
import re
import shutil

import pytest
from click.testing import CliRunner
from comparison.in_process import run_here

from zoo.cli.compare import compare as verb

pytestmark = pytest.mark.xdist_group("comparison")

SETTINGS = [
    *("--set", "hidden_size=16", "--set", "num_hidden_layers=1", "--set", "num_attention_heads=2"),
    *("--set", "intermediate_size=32", "--tokenizer", "word", "--budget", "steps=2", "--training", "use_cpu=true"),
]


def run(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(verb, [*map(str, words), "--quiet"], standalone_mode=False)


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """The folder of a comparison and its data, both after they have been moved."""
    before, after = tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("after")
    rows = "".join(f"word{number} b\tpalavra{number} c\n" for number in range(24))
    (before / "pairs.tsv").write_text(f"en\tpt\n{rows}", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        found = run("pre-norm", "post-norm", "--data", before / "pairs.tsv", *SETTINGS, "-o", before / "out")
        assert found.exception is None and found.return_value == 0, found.output
        shutil.move(before / "out", after / "out")
        shutil.move(before / "pairs.tsv", after / "pairs.tsv")
        yield after


def test_commands_name_the_folder_where_it_is(moved, monkeypatch):
    monkeypatch.chdir(moved)
    shown = run("--report-only", "out")
    commands = shown.stdout.partition("To go on:")[2]
    assert re.search(r"-o out$", commands, re.MULTILINE) and re.search(r"zoo \w+ out/", commands)
    assert commands.count("before") == 1, "that of the data, which the command cannot know"


def test_a_moved_comparison_is_repeated_and_every_number_compared(moved, monkeypatch):
    monkeypatch.chdir(moved)
    found = run("--repeat", "out/results.json", "--data", "pairs.tsv")
    assert found.exception is None and found.return_value == 0, found.output
    numbers = json.loads((moved / "out-repeated" / "repeated.json").read_text(encoding="utf-8"))
    assert {one["run"] for one in numbers} == {"pre-norm, seed 0", "post-norm, seed 0"}
    assert {"heldout_loss", "train_loss", "num_parameters", "scores.bleu"} <= {one["number"] for one in numbers}
    assert all(one["equal"] for one in numbers)
    assert f"{len(numbers)} of {len(numbers)} numbers are equal" in found.stdout

    results = moved / "out" / "results.json"
    changed = json.loads(results.read_text(encoding="utf-8"))
    changed["runs"][0]["report"]["heldout_loss"] += 1e-6
    (moved / "other").mkdir()
    (moved / "other" / "results.json").write_text(json.dumps(changed), encoding="utf-8")
    found = run("--repeat", "other/results.json", "--data", "pairs.tsv", "-o", "out-repeated")
    assert found.return_value == 1 and f"{len(numbers) - 1} of {len(numbers)} numbers are equal" in found.stdout
    assert "pre-norm, seed 0: heldout_loss recorded " in found.stdout


def test_a_record_without_a_finished_run_is_refused(moved, monkeypatch):
    monkeypatch.chdir(moved)
    recorded = json.loads((moved / "out" / "results.json").read_text(encoding="utf-8"))
    for one in recorded["runs"]:
        one["report"] = None
    (moved / "failed").mkdir()
    (moved / "failed" / "results.json").write_text(json.dumps(recorded), encoding="utf-8")
    found = run("--repeat", "failed/results.json", "--data", "pairs.tsv")
    assert "failed finished: it has no number" in str(found.exception) and not (moved / "failed-repeated").exists()


def test_other_data_names_and_the_recorded_folder_are_refused(moved, monkeypatch):
    monkeypatch.chdir(moved)
    (moved / "less.tsv").write_text("en\tpt\n" + "a b\tc d\n" * 3 + "e\tf\n" * 9, encoding="utf-8")
    assert "give its data with --data" in str(run("--repeat", "out/results.json", "--data", "less.tsv").exception)
    assert "takes no NAME" in run("vanilla", "--repeat", "out/results.json").exception.format_message()
    refused = run("--repeat", "out/results.json", "--data", "pairs.tsv", "-o", "out")
    assert "holds the recorded comparison" in str(refused.exception)
