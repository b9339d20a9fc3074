"""Results in a terminal and in a notebook: text and HTML of the same parts."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

OBEYED = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff]")
"""Control characters, ends of lines, and what turns the direction of writing."""


def printable(text: object, keep: str = "") -> str:
    """Escape a terminal's control characters, so that an untrusted text is shown and nothing else happens."""
    return OBEYED.sub(lambda found: found[0] if found[0] in keep else escaped(found[0]), str(text))


def escaped(character: str) -> str:
    """A character as in a string of Python."""
    return character.encode("unicode_escape").decode()


def table_in_markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], rule: Sequence[str] = ()) -> str:
    """Write a table in Markdown; `rule` has the alignment of each column, by default "---"."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule or ["---"] * len(headings), *rows))


WIDTH = 100  # How many columns text takes at most

SHADE, STRONGEST = "#3b82c4", 0.6
"""Colour of shaded cells, and its opacity at the strongest shade."""

GAP = 2  # Blanks between columns

STYLE = """
.zoo-shown{line-height:1.5;max-width:64rem;overflow-x:auto;--line:color-mix(in srgb,currentColor 16%,transparent)}
.zoo-shown p{margin:.2em 0 .7em}
.zoo-shown .title{font-size:1.1em;margin:.1em 0 .6em}
.zoo-shown .soft,.zoo-shown table th,.zoo-shown td.name{color:color-mix(in srgb,currentColor 72%,transparent)}
.zoo-shown table{border-collapse:collapse;border:0;margin:0 0 .8em;font-size:.95em;display:table}
.zoo-shown table tr,.zoo-shown table tr:nth-child(n):hover{background:none}
.zoo-shown table th,.zoo-shown table td{text-align:left;vertical-align:top;padding:.22em 1.4em .22em 0;border:0;
border-bottom:1px solid var(--line);white-space:pre-wrap;max-width:44rem;font-variant-numeric:tabular-nums}
.zoo-shown table th{font-weight:600}
.zoo-shown table .number{text-align:right;white-space:nowrap}
.zoo-shown table .shaded{padding:.22em .7em;border-bottom:0;text-align:center;white-space:pre}
.zoo-shown details{margin:0 0 .8em}
.zoo-shown summary{cursor:pointer;margin-bottom:.4em}
.zoo-shown pre{font-size:.9em;line-height:1.45;overflow-x:auto;margin:0}
.zoo-shown iframe{border:0;width:100%;color-scheme:normal}
"""
"""Style that follows the page: light or dark background, and the notebook's fonts."""


class Part(Protocol):
    """Something to show."""

    def text(self) -> str:
        """Text for a terminal."""

    def html(self) -> str:
        """Escaped HTML for a notebook."""


class Printed:
    """Shown by `print` and by notebooks: base class of results that list their parts in `shown`."""

    def shown(self) -> Iterable[Part]:
        """Parts from top to bottom."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(part.text() for part in self.shown())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return as_html(self.shown())


def as_html(parts: Iterable[Part]) -> str:
    """Write parts as one element with its style in it."""
    return f'<div class="zoo-shown"><style>{STYLE}</style>{"".join(part.html() for part in parts)}</div>'


@dataclass(frozen=True)
class Title:
    """A name and a line about it."""

    name: str
    words: str = ""

    def text(self) -> str:
        return ": ".join(filter(None, (self.name, self.words)))

    def html(self) -> str:
        return f'<p class="title"><strong>{escape(self.name)}</strong> &ensp;{escape(self.words)}</p>'


@dataclass(frozen=True)
class Note:
    """A sentence."""

    words: str

    def text(self) -> str:
        return textwrap.fill(self.words, WIDTH, break_long_words=False, break_on_hyphens=False)

    def html(self) -> str:
        return f'<p class="soft">{escape(self.words)}</p>'


@dataclass(frozen=True)
class Source:
    """Preformatted text: code, or a drawing made of characters."""

    code: str

    def text(self) -> str:
        return self.code

    def html(self) -> str:
        return f"<pre>{escape(self.code)}</pre>"


@dataclass(frozen=True)
class Picture:
    """A drawing."""

    svg: str  # An SVG element; its text is escaped
    words: str  # The same made of letters

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Page:
    """A page with its own style and script."""

    document: str  # The whole page
    words: str  # Text for a terminal
    height: int  # How much room it has, in pixels

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        """A frame, which keeps its style and its script from everything else."""
        return f'<iframe title="{escape(self.words)}" height="{self.height}" srcdoc="{escape(self.document)}"></iframe>'


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers."""

    rows: Sequence[Sequence[str]]  # The cells; the first of a row is its name
    headings: tuple[str, ...] = ()  # Above the columns; empty for names with facts
    numbers: tuple[str, ...] = ()  # Headings of the columns with numbers, which end below each other
    # Strength of each cell's background colour, names aside, from 0 to 1. *Shape:* as rows, less a column
    shades: Sequence[Sequence[float]] = ()

    def text(self) -> str:
        """Columns, folded so that a line has at most `WIDTH` characters; names never are."""
        rows = [*([self.headings] if self.headings else []), *self.rows]
        listed = [[printable(cell, keep="\n") for cell in row] for row in rows]
        widths = [
            max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*listed, strict=True)
        ]
        while len(widths) > 1 and (excess := sum(widths) + GAP * (len(widths) - 1) - WIDTH) > 0:
            widest = max(range(1, len(widths)), key=widths.__getitem__)
            if widths[widest] <= WIDTH // (2 * len(widths)):
                break
            widths[widest] = max(widths[widest] - excess, WIDTH // (2 * len(widths)))
        right = [heading in self.numbers for heading in self.headings] or [False] * len(widths)
        return "\n".join(line for row in listed for line in self._lines(row, widths, right))

    @staticmethod
    def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterable[str]:
        cells = [
            [line for part in text.split("\n") for line in (folded(part, width) if place else [part])]
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            padded = (
                text.rjust(width) if number else text.ljust(width)
                for text, width, number in zip(line, widths, right, strict=True)
            )
            yield (" " * GAP).join(padded).rstrip()

    def html(self) -> str:
        usual = "shaded" if self.shades else ""
        classes = ["", *("number" if heading in self.numbers else usual for heading in self.headings[1:])]
        head = "".join(element("th", *pair) for pair in zip(self.headings, classes, strict=False))
        body = ""
        for place, (name, *others) in enumerate(self.rows):
            body += f"<tr>{element('td', name, 'name')}"
            for column, text in enumerate(others):
                style, more = classes[column + 1] if self.headings else usual, ""
                if self.shades:
                    share = 100 * STRONGEST * self.shades[place][column]
                    style, more = "shaded", f' style="background:color-mix(in srgb,{SHADE} {share:.0f}%,transparent)"'
                body += element("td", text, style, more)
            body += "</tr>"
        return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def element(tag: str, text: str, style: str, more: str = "") -> str:
    """Write an element with a class, if any, and more attributes, if any."""
    named = f' class="{style}"' if style else ""
    return f"<{tag}{named}{more}>{escape(text)}</{tag}>"


def folded(text: str, width: int) -> list[str]:
    """Break a text into lines where its words end."""
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


@dataclass(frozen=True)
class Folded:
    """Collapsed details in HTML; not shown on a terminal."""

    words: str  # Summary of the details
    parts: tuple[Part, ...]  # The details

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        inner = "".join(part.html() for part in self.parts)
        return f"<details><summary>{escape(self.words)}</summary>{inner}</details>"
