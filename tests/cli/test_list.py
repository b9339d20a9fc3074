import json
import re

import pytest

from zoo.comparison.benchmarks import benchmarks
from zoo.comparison.benchmarks.judging import ranking, recorded
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
    assert "\x1b" not in line and line == line.rstrip()


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
    assert row["tasks"] == list(variant.tasks) and row["quirks"] == list(variant.quirks)
    assert (row["summary"], row["source"], row["paper"]) == (variant.summary, variant.source, variant.paper)
    assert row["distribution"] == "transformer-zoo"


def test_the_best_of_a_benchmark_come_first(zoo, tmp_path):
    best = ranking("char-lm").standings
    known = [one.variant for one in best if one.variant in VARIANTS]
    listed = json.loads(zoo("list", "--sort", "char-lm", "--json").stdout)
    names = [row["name"] for row in listed]
    assert names[: len(known)] == known and sorted(names) == list_variants()
    assert listed[0]["standing"]["mean"] == best[0].samples["heldout_loss"].mean and listed[-1]["standing"] is None
    word = next(one.verdict for one in best if one.variant == "llama-style")
    lines = zoo("list", "--sort", "char-lm", "llama-style", "vanilla").stdout.splitlines()
    assert lines[1].startswith("llama-style") and f"  {word}  " in lines[1] and lines[2].startswith("vanilla ")
    mine = tmp_path / "mine.yaml"  # without recorded rows next to it
    mine.write_bytes(benchmarks()["char-lm"].results.parents[1].joinpath("char-lm.yaml").read_bytes())
    assert "nothing is recorded of benchmark 'mine'" in zoo("list", "--sort", str(mine)).stderr
    assert "did you mean 'char-lm'" in zoo("list", "--sort", "char_lm").stderr


def test_a_card_has_what_was_recorded_of_its_variant(zoo):
    standing = next(one for one in ranking("char-lm").standings if one.variant == "llama-style")
    text = zoo("show", "llama-style", columns=160).stdout
    mean = standing.samples["heldout_loss"].mean
    assert any(re.match(rf"\s*char-lm, 500 steps +Held-out loss {mean:.4f}", line) for line in text.splitlines()), text
    found = json.loads(zoo("show", "llama-style", "--json").stdout)["results"]
    assert ("char-lm", standing.verdict, 3) in [(one["benchmark"], one["verdict"], one["seeds"]) for one in found]
    judged = [verdicts for benchmark in benchmarks().values() for verdicts in recorded(benchmark)]
    somewhere = {standing.variant for verdicts in judged for standing in verdicts.standings}
    for name in sorted(set(list_variants()) - somewhere)[:1]:
        assert "Recorded, with" not in zoo("show", name).stdout


def test_what_matches_nothing_is_said_and_is_no_error(zoo):
    run = zoo("list", "llama")
    assert (run.exit_code, run.stdout) == (0, "")
    assert run.stderr == "zoo: no variant matches 'llama'; did you mean 'llama-style'?\n"
