"""Kept answers: quick the second time, and never out of date."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.cli.answers import KEPT, SWITCH, answer, is_answer, keep, place_of_answer, sources

ROOT = Path(__file__).parents[2]
LIST = ["tasks", "*-norm"]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's cache, of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "transformer-zoo" / "answers"


def printing(text: str, status: int = 0, complaint: str = "") -> Callable[[], None]:
    def find_out() -> None:
        print(text)
        sys.stderr.write(complaint)
        sys.exit(status)

    return find_out


def never() -> None:
    raise AssertionError("it is known already")


def test_nothing_is_kept_for_somebody_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_answer(LIST)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is for a number without an account
    assert not is_answer(LIST)


@pytest.mark.slow
def test_an_answer_is_quick_the_second_time_and_follows_the_sources(tmp_path: Path) -> None:
    place = tmp_path / "package" / "zoo"
    left_out = shutil.ignore_patterns("*.safetensors", "tokenizer.json")  # what was compiled of the sources comes along
    for inner, target in (("zoo", place), ("registry", place / "registry"), ("converters", place / "converters")):
        shutil.copytree(ROOT / inner, target, ignore=left_out)

    def listed() -> tuple[str, set[str]]:
        env = {**os.environ, "PYTHONPATH": str(place.parent), "PYTHONPROFILEIMPORTTIME": "1"}
        command = [sys.executable, "-m", "zoo", "bench", "list", "--json"]
        run = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        return run.stdout, {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}

    first, imported = listed()
    assert "Sums of two digits" in first and "transformers" in imported
    again, imported = listed()
    assert again == first
    assert not imported & {"torch", "transformers", "huggingface_hub", "numpy", "rich"}
    source = place / "comparison" / "benchmarks" / "adder.yaml"
    source.write_text(source.read_text().replace("Sums of two digits", "Two digits added"))
    changed, _ = listed()
    assert changed == first.replace("Sums of two digits", "Two digits added") != first


@pytest.mark.parametrize(
    "inner", ["zoo/comparison/benchmarks/results/char-lm.csv", "converters/measured.tsv", "zoo/training/recipes"]
)
def test_an_answer_follows_what_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inner: str) -> None:
    """`zoo show` and `zoo claims` say what rows say: the same command after another row is another answer."""
    listed = list(sources())
    shipped = [file for file in listed if (ROOT / inner) in (file, *file.parents)]
    assert shipped
    copied = tmp_path / shipped[0].name
    shutil.copy(shipped[0], copied)
    monkeypatch.setattr("zoo.cli.answers.sources", lambda: [copied, *listed])
    before = place_of_answer(LIST)
    assert place_of_answer(LIST) == before
    copied.write_text(copied.read_text() + "\n")
    assert place_of_answer(LIST) != before


def test_only_what_was_said_without_complaint_is_kept(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for find_out in (printing("wrong", status=2), printing("old", complaint="deprecated")):
        with pytest.raises(SystemExit):
            answer(LIST, find_out)
        assert not cache.exists()
    with pytest.raises(SystemExit):
        answer(LIST, printing("näher →"))
    capsys.readouterr()
    answer(LIST, never)
    assert capsys.readouterr().out == "näher →\n"
    place_of_answer(LIST).write_bytes(b"\xff\xfe")
    with pytest.raises(SystemExit):
        answer(LIST, printing("anew"))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train", "vanilla"],
        ["weights", "verify"],
        ["weights", "make", "vanilla.en-pt"],
        ["bench", "run", "quirks"],
        ["bench", "verify", "char-lm"],
        ["list", "--hub", "someone"],
        ["settings"],
        ["show", "vanilla", "--svg=out.svg"],
        ["recipes", str(Path(__file__))],
    ],
)
def test_what_does_something_or_reads_files_is_no_answer(arguments: list[str]) -> None:
    assert is_answer(LIST) and is_answer(["show", "vanilla.en-pt", "--json"]) and is_answer(["bench", "show", "quirks"])
    assert not is_answer(arguments)


def test_nothing_is_kept_where_plugins_are_or_where_it_is_turned_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as turned_off:
        turned_off.setenv(SWITCH, "never")
        assert not is_answer(LIST)
    before = place_of_answer(LIST)
    installed = tmp_path / "my_variant-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-variant\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert is_answer(LIST) and place_of_answer(LIST) != before, "another distribution, another answer"
    (installed / "entry_points.txt").write_text("[zoo.plugins]\nmy-variant = my_variant\n")
    assert not is_answer(LIST)


@pytest.mark.parametrize("name", ["COLUMNS", "NO_COLOR", "ZOO_PLUGINS"])
def test_another_terminal_has_another_answer(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = place_of_answer(LIST)
    assert place_of_answer(LIST) == before != place_of_answer(["tasks", "*", "-norm"])
    monkeypatch.setenv(name, "77")
    assert place_of_answer(LIST) != before


def test_the_latest_answers_stay_and_a_cache_is_not_needed(cache: Path, tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        keep(cache / f"{number}.txt", "")
        os.utime(cache / f"{number}.txt", (number, number))
    assert {int(file.stem) for file in cache.iterdir()} >= set(range(3, KEPT + 3))
    assert len(list(cache.iterdir())) <= KEPT + 1
    (tmp_path / "file").write_text("")
    keep(tmp_path / "file" / "answers" / "1.txt", "")
