"""Texts of strangers are shown, and nothing in them is obeyed: by terminals, Markdown, HTML."""

from __future__ import annotations

import errno
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from zoo.base.printing import printable
from zoo.cli.output import table, write
from zoo.cli.predict import line_of
from zoo.cli.reporting import describe, write_line
from zoo.comparison.display.documents import markdown
from zoo.hub.errors import without_secrets

HOSTILE = "a\x1b[31m\x9b2Jb\r\n\u2028\u202ec\x00"


@given(st.text())
def test_nothing_is_left_to_obey(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1 and not any(character in shown for character in "\x1b\x9b\r\u202e\x00")
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["Olá, mundo: não é £5 \\ 日本語 🙂", ""])
def test_texts_without_such_characters_stay(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "show",
    [
        lambda text: write_line("error", text),
        lambda text: write(table(("",), [(text.replace("\n", " "),)])),
        lambda text: click.echo(without_secrets(text), err=True),
    ],
    ids=["an error", "a table", "a Hub's answer"],
)
def test_terminals_obey_nothing(show: object) -> None:
    @click.command()
    def command() -> None:
        show(HOSTILE)  # type: ignore[operator]

    shown = CliRunner().invoke(command, color=True)
    assert shown.exception is None, shown.exception
    assert "\\x9b" in shown.output and "\x9b" not in shown.output and "\x1b[31m" not in shown.output
    assert len(shown.output.splitlines()) == 1, shown.output


def test_labels_with_ends_of_lines_take_one_line() -> None:
    from zoo.training.predict import Label

    shown = printable(line_of(Label("a text", label="good\nbad\x1b[2J", score=0.5)), keep="\t")
    assert shown == "good\\nbad\\x1b[2J\t0.5000\ta text"


def test_a_path_is_no_html_in_markdown() -> None:
    assert markdown("<script>/data\n") == "&lt;script>/data\\n"


def test_a_full_disk_is_named() -> None:
    assert describe(OSError(errno.ENOSPC, "No space left on device")).startswith("No space left on device: ")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_an_output_that_takes_nothing_is_named() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "zoo", "tasks", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode != 0 and "No space left on device: " in done.stderr, done.stderr
