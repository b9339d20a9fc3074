"""Weights by name on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from zoo.cli.main import cli
from zoo.registry import find_weights, list_weights


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": None}).invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_lists_shows_and_verifies() -> None:
    assert run("weights").count("\n") == len(list_weights()) + 1
    assert [one["name"] for one in json.loads(run("weights", "list", "*.en-pt", "--json"))] == list_weights("*.en-pt")
    score = find_weights("vanilla.en-pt").scores["bleu"]
    for output in (run("weights"), run("weights", "show", "vanilla.en-pt"), run("show", "vanilla")):
        assert str(score) in output
    assert run("show", "vanilla.en-pt") == run("weights", "show", "vanilla.en-pt")
    verified = run("weights", "verify", "--quick").splitlines()
    assert [line.split() for line in verified] == [
        [name, "ok"] for name in list_weights() if not find_weights(name).on_hub
    ]
    (found,) = json.loads(run("weights", "verify", "--quick", "vanilla.language", "--json"))
    assert found == {"name": "vanilla.language", "holds": True, "problem": None, "scores": []}


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_terminal_is_not_overrun(columns: int) -> None:
    lines = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, ["weights"]).stdout.splitlines()
    assert max(map(len, lines)) <= columns and len(lines) < 4 * len(list_weights())
    (line,) = (line for line in lines if line.startswith("vanilla.en-pt "))
    assert f"BLEU {find_weights('vanilla.en-pt').scores['bleu']}" in line and "Translates everyday" in line


def test_what_matches_nothing_is_said_and_is_no_error() -> None:
    result = CliRunner().invoke(cli, ["weights", "list", "vanila.en-pt"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "zoo: no weights match 'vanila.en-pt'; did you mean 'vanilla.en-pt'?\n"


@pytest.mark.slow
def test_verbs_take_names_where_they_take_folders(tmp_path: Path) -> None:
    assert run("generate", "vanilla.en-pt", "The water is cold.") == "A água está fria.\n"
    assert run("predict", "vanilla.language", "The water is cold.").startswith("English\t")
    assert "BLEU" in run("evaluate", "vanilla.en-pt", "--n-bootstrap", "1", "--quiet")
    assert "would push" in run("push", "vanilla.en-pt", "org/name", "--dry-run").lower()
    run("attention", "vanilla.en-pt", "--source", "The water is cold.", "-o", str(tmp_path / "attention"))
    run("export", "vanilla.language", "--plan")
