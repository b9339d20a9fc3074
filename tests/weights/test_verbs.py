"""Weights by name on the command line."""

from __future__ import annotations

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
    assert "ok" in run("weights", "verify", "--quick")


@pytest.mark.slow
def test_verbs_take_names_where_they_take_folders(tmp_path: Path) -> None:
    assert run("generate", "vanilla.en-pt", "The water is cold.") == "A água está fria.\n"
    assert run("predict", "vanilla.language", "The water is cold.").startswith("English\t")
    assert "BLEU" in run("evaluate", "vanilla.en-pt", "--n-bootstrap", "1", "--quiet")
    assert "would push" in run("push", "vanilla.en-pt", "org/name", "--dry-run").lower()
    run("attention", "vanilla.en-pt", "--source", "The water is cold.", "-o", str(tmp_path / "attention"))
    run("export", "vanilla.language", "--plan")
