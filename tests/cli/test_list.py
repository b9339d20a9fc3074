from __future__ import annotations

import json

import pytest

from zoo.registry import TASKS, VARIANTS, list_variants


def test_every_variant_is_listed(zoo):
    lines = zoo("list").stdout.splitlines()
    assert lines[0].split() == ["Name", "Tasks", "Summary", "Paper", "From"]
    assert [line.split()[0] for line in lines[1:]] == list_variants()


def test_piped_rows_are_whole_and_plain(zoo):
    line = next(line for line in zoo("list").stdout.splitlines() if line.startswith("vanilla "))
    variant = VARIANTS.get("vanilla")
    for text in (" ".join(variant.tasks), variant.summary, variant.paper, "built in"):
        assert text in line
    assert "\x1b" not in line
    assert line == line.rstrip()


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_is_not_overrun(zoo, columns):
    lines = zoo("list", columns=columns, TTY_COMPATIBLE="1", TERM="dumb").stdout.splitlines()
    assert max(map(len, lines)) <= columns
    for name in list_variants():
        assert any(line.startswith(f"{name} ") for line in lines)
    assert "S..q.f" in next(line for line in lines if line.startswith("vanilla "))
    assert all(any(task in line for line in lines[-4:-2]) for task in TASKS)
    assert lines[-2:] == ["", "Next: zoo show NAME"]


def test_papers_are_there_for_whoever_asks(zoo):
    narrow, wide = (zoo("list", "vanilla", *options, columns=80).stdout for options in ((), ("--wide",)))
    assert "Vaswani" not in narrow and "Vaswani" in wide and "built in" in " ".join(wide.split())
    assert max(map(len, wide.splitlines())) <= 80


def test_patterns_tasks_and_tags(zoo):
    def names(*arguments):
        return [row["name"] for row in json.loads(zoo("list", "--json", *arguments).stdout)]

    assert names("*-norm", "!qk*") == list_variants(["*-norm", "!qk*"])
    assert names("--task", "masked-lm") == list_variants(task="masked-lm")
    assert names("--tag", "original") == list_variants(tag="original")


def test_json(zoo):
    (row,) = json.loads(zoo("list", "d2l-style", "--json").stdout)
    variant = VARIANTS.get("d2l-style")
    assert row["tasks"] == list(variant.tasks)
    assert row["quirks"] == list(variant.quirks)
    assert (row["summary"], row["source"], row["paper"]) == (variant.summary, variant.source, variant.paper)
    assert row["distribution"] == "transformer-zoo"


def test_what_matches_nothing_is_said_and_is_no_error(zoo):
    run = zoo("list", "llama")
    assert (run.exit_code, run.stdout) == (0, "")
    assert run.stderr == "zoo: no variant matches 'llama'; did you mean 'llama-style'?\n"
