"""Texts of strangers are shown, and nothing in them is obeyed: by terminals, Markdown, HTML."""

import errno
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_comparison import made_up

from zoo.analysis.drawing.elements import element
from zoo.base import printed
from zoo.base.printed import printable
from zoo.cli.generate import streamer_to_stdout
from zoo.cli.output import for_stdout, table, write
from zoo.cli.predict import line_of
from zoo.cli.reporting import describe, write_line
from zoo.comparison.display.documents import markdown
from zoo.comparison.display.report import to_html
from zoo.comparison.results.summary import summarize
from zoo.hub.errors import without_secrets
from zoo.inside.attending import AttentionMap, AttentionMaps
from zoo.inside.heatmaps import attention_page
from zoo.training.answers import Answer, write_report

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
        lambda text: write(table(("",), [(text,)])),
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


@pytest.mark.parametrize("on_terminal", [True, False], ids=["a terminal", "a pipe"])
def test_generated_text_is_escaped_for_terminals_only(on_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    expected = HOSTILE if not on_terminal else "a\\x1b[31m\\x9b2Jb\\r\n\\u2028\\u202ec\\x00"
    assert for_stdout(HOSTILE) == expected
    streamer = streamer_to_stdout(None)  # type: ignore[arg-type]
    streamer.on_finalized_text(HOSTILE, stream_end=True)
    assert sys.stdout.getvalue() == expected + "\n"  # type: ignore[attr-defined]


class Foreign(HTMLParser):
    """Finds elements and attributes that a text has brought into a page, and into the pages in its frames."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [tag, *(name for name, _ in attrs)]
        self.found += [name for name in names if "foreign" in name]
        self.found += [found for name, value in attrs if name == "srcdoc" for found in Foreign(value or "").found]


FOREIGN = (
    *("<foreign>", "</script><foreign>", "</title><foreign>", '"foreign=1 ', "'foreign=1 "),
    *("<!--", "&lt;", "a", " "),
)
foreign_texts = st.lists(st.sampled_from(FOREIGN), min_size=1, max_size=4).map("".join)


def comparison_page(text: str) -> str:
    runs = {"vanilla": (31.0, 1.0), f"pre-norm:{text}": (34.0, 1.0)}
    return to_html(
        summarize(
            made_up(
                runs,
                seeds=2,
                sources=[text] * 6,
                references=[text] * 6,
                folder=Path(text),
                command=["zoo", "compare", "--data", f"/{text}/{text}.csv"],
            )
        )
    )


def errors_page(text: str) -> str:
    answers = [Answer(text, text, text, 0.5, (0,), (1,))]
    with TemporaryDirectory() as folder:
        write_report(Path(folder), text, answers, [text, f"{text}{text}"])
        return (Path(folder) / "report.html").read_text(encoding="utf-8")


def attention_maps_page(text: str) -> str:
    weights = np.ones((1, 1, 1, 1), dtype=np.float32)
    one = AttentionMap("decoder", weights, (text,), (text,), (1,))
    return attention_page(AttentionMaps(text, text, text, (one,)))


def parts_page(text: str) -> str:
    table = printed.Table([(text, text)], (text, text), (text,), [[0.5]])
    parts = (
        printed.Title(text, text),
        printed.Note(text),
        printed.Source(text),
        printed.Page(drawing(text), text, 9),
        table,
    )
    return printed.as_html([*parts, printed.Folded(text, parts[:3])])


def drawing(text: str) -> str:
    return str(element("svg", element("title", text), element("g", id=text)))


PAGES = [comparison_page, errors_page, attention_maps_page, parts_page, drawing]


@pytest.mark.parametrize("page", PAGES)
@given(text=foreign_texts)
@settings(max_examples=15, deadline=None)
def test_pages_show_names_labels_and_paths_as_text(page: Callable[[str], str], text: str) -> None:
    assert not Foreign(page(text)).found
