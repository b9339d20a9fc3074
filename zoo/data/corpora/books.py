"""Books in Markdown as plain text, split by book into train, validation and test."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

SPLITS = ("train", "validation", "test")
IN_VALIDATION, IN_TEST = 2, 2  # Percent of works

FIELD = re.compile(r"^#+ *(Title|Author|Year): *(.*?)\s*$", re.MULTILINE)
RULE = re.compile(r"^[ \t]*(?:-{3,}|_{3,}|\*{3,}|(?:\* +){2,}\*)[ \t]*$", re.MULTILINE)
LICENCE = re.compile(r"^\W*(START|END) OF (?:THE |THIS )?PROJECT GUTENBERG.*$", re.MULTILINE | re.IGNORECASE)

MARKUP = (
    (re.compile("[\u200b\ufeff\u00ad]"), ""),
    (re.compile("[\u00a0\u2007\u202f]"), " "),
    (RULE, ""),
    (re.compile(r"!\[[^\]\n]*\](?:\([^)\n]*\))?"), ""),
    (re.compile(r"\[(?:illustration|transcriber)[^\]]*\]", re.IGNORECASE), ""),
    (re.compile(r"\[([^\]\n]+)\]\([^)\n]+\)"), r"\1"),
    (re.compile(r"^[ \t]*(?:#{1,6}|>)[ \t]+", re.MULTILINE), ""),
    (re.compile(r"\*\*((?:[^*\n]|\n(?!\n))+)\*\*"), r"\1"),
    (re.compile(r"\*(?!\s)((?:[^*\n]|\n(?!\n))+)\*"), r"\1"),
    (re.compile(r"(?<![\w\\])_((?:[^_\n]|\n(?!\n))+)_(?!\w)"), r"\1"),
    (re.compile(r"(?<=\w)_(?=\w)"), ""),
    (re.compile(r"\\([\\`*_{}\[\]()#+\-.!~|])"), r"\1"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
    (re.compile(r"\n{3,}"), "\n\n"),
    (re.compile(r"(?:\n+\d{1,3})+\s*\Z"), ""),
)
"""Markup of Markdown and its authors, and its replacement: applied in this order."""

PARAGRAPH = 80  # Characters from which a line counts as a paragraph when books are compared
SHARED = 0.3  # Share of the shorter book's paragraphs from which two books are one work


@dataclass(frozen=True)
class Book:
    """A cleaned book."""

    path: str
    title: str
    author: str
    year: str
    text: str

    @property
    def words(self) -> int:
        """Number of words, by spaces."""
        return len(self.text.split())


def clean(path: str, raw: str) -> Book:
    """Make plain text of a book: without front matter, licence and markup."""
    raw = raw.replace("\r\n", "\n").replace("\r", "\n")
    for found in LICENCE.finditer(raw):
        raw = raw.replace(found.group(), "\0" if found.group(1).upper() == "START" else "\1")
    raw = raw.rpartition("\0")[2].partition("\1")[0]
    end = RULE.search(raw)
    front, text = (raw[: end.start()], raw[end.end() :]) if end and FIELD.search(raw[: end.start()]) else ("", raw)
    fields = {name.lower(): value for name, value in FIELD.findall(front)}
    author, title = Path(path).parent.name, Path(path).stem.strip()
    text = html.unescape(text)
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return Book(
        path, fields.get("title") or title, fields.get("author") or author, fields.get("year", ""), text.strip() + "\n"
    )


def works(paragraphs: Mapping[str, set[bytes]], titles: Mapping[str, str]) -> dict[str, str]:
    """Map each book to the first path of its work: editions of a work, or books that contain one another."""
    first = {path: path for path in paragraphs}

    def root(path: str) -> str:
        while first[path] != path:
            path = first[path]
        return path

    books_with: dict[bytes | str, list[str]] = defaultdict(list)
    for path in sorted(paragraphs):
        books_with[titles[path]].append(path)
        for paragraph in paragraphs[path]:
            books_with[paragraph].append(path)
    shared: Counter[tuple[str, str]] = Counter()
    for key, paths in books_with.items():
        for pair in combinations(sorted(paths), 2):
            shared[pair] += 1 << 30 if isinstance(key, str) else 1
    for (one, other), number in sorted(shared.items()):
        if number > SHARED * min(len(paragraphs[one]), len(paragraphs[other])):
            early, late = sorted((root(one), root(other)))
            first[late] = early
    return {path: root(path) for path in first}


def plain_title(book: Book) -> str:
    """Author and title as all editions have them: without articles, subtitles and marks."""
    title = re.sub(r"[:;(].*$|^(the|an?) |[^a-z0-9 ]", "", book.title.lower())
    return f"{book.author}: {title.strip()}"


def split_of(work: str) -> str:
    """Split that a work belongs to, by the hash of its path."""
    percent = int.from_bytes(hashlib.sha256(work.encode()).digest()[:8], "big") % 100
    return SPLITS[(percent < IN_VALIDATION + IN_TEST) + (percent < IN_TEST)]


def hashes(text: str) -> set[bytes]:
    """Hashes of paragraphs, by their letters alone."""
    lines = (line for line in text.splitlines() if len(line) >= PARAGRAPH)
    return {hashlib.blake2b(re.sub(r"[\W\d_]+", "", line.lower()).encode(), digest_size=8).digest() for line in lines}


def build(downloads: Path, made: Path) -> None:
    """Write train.jsonl, validation.jsonl and test.jsonl, a book a line, and table.tsv of books, authors and words.

    Args:
        downloads: Folder of authors' folders with a .md file a book.
        made: The folder to write.
    """
    files = {str(file.relative_to(downloads).as_posix()): file for file in sorted(downloads.rglob("*.md"))}
    paragraphs, titles = {}, {}
    for path, file in files.items():
        book = read(path, file)
        paragraphs[path], titles[path] = hashes(book.text), plain_title(book)
    write(made, (read(path, file) for path, file in files.items()), works(paragraphs, titles))


def read(path: str, file: Path) -> Book:
    return clean(path, file.read_text(encoding="utf-8"))


def write(made: Path, books: Iterable[Book], work_of: Mapping[str, str]) -> None:
    made.mkdir()
    with ExitStack() as stack:
        streams = {
            split: stack.enter_context((made / f"{split}.jsonl").open("w", encoding="utf-8")) for split in SPLITS
        }
        table = stack.enter_context((made / "table.tsv").open("w", encoding="utf-8"))
        table.write("path\ttitle\tauthor\tyear\twords\tsplit\twork\n")
        for book in books:
            split, fields = split_of(work_of[book.path]), (book.title, book.author, book.year)
            record = {"text": book.text, **dict(zip(("title", "author", "year"), fields, strict=True))}
            streams[split].write(json.dumps(record, ensure_ascii=False) + "\n")
            table.write("\t".join((book.path, *fields, str(book.words), split, work_of[book.path])) + "\n")
