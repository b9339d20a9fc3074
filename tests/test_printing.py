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
from zoo.base.printed import Folded, Note, Page, Part, Picture, Printed, Source, Table, Title, as_html, printable
from zoo.cli.generate import line_of, streamer_to_stdout
from zoo.cli.output import for_stdout, table, write
from zoo.cli.reporting import describe, write_line
from zoo.comparison.display.documents import markdown
from zoo.comparison.display.report.page import to_html
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


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert describe(full).startswith("No space left on device: ")
    monkeypatch.setattr("os.path.expanduser", str)  # a user without an account, as in containers
    assert describe(full).startswith("No space left on device: ")


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


FOREIGN = ("<foreign>", "</script><foreign>", "</title><foreign>", '"foreign=1 ', "'foreign=1 ")
FOREIGN += ("<!--", "&lt;", "a", " ")
foreign_texts = st.lists(st.sampled_from(FOREIGN), min_size=1, max_size=4).map("".join)


def comparison_page(text: str) -> str:
    runs = {"vanilla": (31.0, 1.0), f"pre-norm:{text}": (34.0, 1.0)}
    command = ["zoo", "compare", "--data", f"/{text}/{text}.csv"]
    texts = {"sources": [text] * 6, "references": [text] * 6, "folder": Path(text), "command": command}
    return to_html(summarize(made_up(runs, seeds=2, **texts)))


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
    page = printed.Page(drawing(text), text, 9)
    parts = (printed.Title(text, text), printed.Note(text), printed.Source(text), page, table)
    return printed.as_html([*parts, printed.Folded(text, parts[:3])])


def drawing(text: str) -> str:
    return str(element("svg", element("title", text), element("g", id=text)))


PAGES = [comparison_page, errors_page, attention_maps_page, parts_page, drawing]


@pytest.mark.parametrize("page", PAGES)
@given(text=foreign_texts)
@settings(max_examples=15, deadline=None)
def test_pages_show_names_labels_and_paths_as_text(page: Callable[[str], str], text: str) -> None:
    assert not Foreign(page(text)).found


WORDS = st.text(alphabet=st.sampled_from("ab<>&\"' \n☃"), max_size=60)


class Reader(HTMLParser):
    """Collects the tags and the text of a page, that of styles left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags[-1] != "style" or not data.startswith("\n.zoo-shown"):
            self.words.append(data)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), WORDS)
def test_nothing_that_is_shown_becomes_an_element(rows: list[tuple[str, ...]], words: str) -> None:
    parts: list[Part] = [Title(words, words), Note(words), Source(words), Table(rows), Folded(words, (Table(rows),))]
    found = Reader(as_html(parts))
    allowed = {"div", "style", "p", "strong", "pre", "table", "tbody", "tr", "td", "details", "summary"}
    assert set(found.tags) <= allowed
    assert "".join(found.words).count("☃") == 5 * words.count("☃") + 2 * str(rows).count("☃")


@given(st.lists(st.tuples(st.text("ab ", max_size=20), *[st.text("ab ", max_size=200)] * 3), min_size=1, max_size=4))
def test_text_has_at_most_a_hundred_columns(rows: list[tuple[str, ...]]) -> None:
    folding = [tuple(" ".join(cell[i : i + 9] for i in range(0, len(cell), 9)) for cell in row) for row in rows]
    lines = Table(folding, ("name", "b", "c", "d"), ("d",)).text().splitlines()
    assert max(map(len, lines)) <= 100
    kept = sorted("".join(lines).replace(" ", ""))
    assert kept == sorted("name" + "bcd" + "".join("".join(row).replace(" ", "") for row in rows))


def test_a_page_stays_in_a_frame_of_its_own() -> None:
    (frame,) = Reader(Page("<script>alert('x')</script>", 'a "page"', 10).html()).tags
    assert frame == "iframe"


def test_numbers_and_shades_are_seen() -> None:
    table = Table([("a", "1"), ("b", "22")], ("name", "count"), ("count",))
    assert table.text().splitlines() == ["name  count", "a         1", "b        22"]
    assert '<td class="number">22</td>' in table.html()
    assert "#3b82c4 30%" in Table([("a", "x")], shades=[[0.5]]).html()


def test_a_class_prints_its_parts_as_text_and_as_html() -> None:
    class Shown(Printed):
        def shown(self) -> list[Part]:
            return [Title("This", "and that"), Picture("<svg/>", "(picture)")]

    assert str(Shown()) == "This: and that\n(picture)"
    assert Shown()._repr_html_().endswith("<strong>This</strong> &ensp;and that</p><svg/></div>")
