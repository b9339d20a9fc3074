"""Books: cleaned, and split so that no work is on two sides."""

import json
from pathlib import Path

from zoo.data.corpora import books

FRONT = "# Title: {}\r\n\r\n## Author: {}\r\n\r\n## Year: 1901\r\n\r\n-------\r\n\r\n"
MARKED = (
    "## One - THE \u200bDOOR\r\n\r\nHe said it was _very_ late,\u00a0and **she\r\nwent**. It cost 3 \\* 4 &amp; more.  "
    "\r\n\r\n* * *\r\n\r\n> quoted *words* here\r\n\r\n![A door](door.png)\r\n"
    "[Illustration: a door]\r\n\r\n\r\n\r\nThe end.\r\n\r\n12\r\n"
)


def test_front_matter_markup_and_page_numbers_are_removed():
    book = books.clean("A. Writer/The Door.md", FRONT.format("The Door", "A. Writer") + MARKED)
    assert (book.title, book.author, book.year) == ("The Door", "A. Writer", "1901")
    text = "One - THE DOOR\n\nHe said it was very late, and she\nwent. It cost 3 * 4 & more.\n\nquoted words here"
    assert book.text == f"{text}\n\nThe end.\n"


def test_licence_headers_are_removed():
    raw = (
        "Licensed by someone.\n*** START OF THE PROJECT GUTENBERG EBOOK DOOR ***\n\nText.\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK DOOR ***\nMore licence.\n"
    )
    book = books.clean("A/Door.md", raw)
    assert (book.text, book.title, book.author) == ("Text.\n", "Door", "A")


def paragraph(book: str, number: int) -> str:
    return f"The paragraph {'x' * number} of {book} has enough letters to be compared with those of other books.\n\n"


def test_editions_and_collections_are_on_one_side(tmp_path: Path):
    texts = {f"Author {n}/Book {n}.md": [paragraph(f"book{chr(97 + n)}", i) for i in range(9)] for n in range(20)}
    texts["Author 3/Book 3: a second edition.md"] = ["Another text altogether, with not one paragraph in common.\n"]
    texts["Author 5/Tales.md"] = [*texts["Author 5/Book 5.md"], *(paragraph("tales", i) for i in range(40))]
    for path, parts in texts.items():
        author, _, title = path.removesuffix(".md").partition("/")
        file = tmp_path / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FRONT.format(title, author) + "".join(parts), encoding="utf-8")
    books.build(tmp_path / "files", tmp_path / "text")
    rows = [line.split("\t") for line in (tmp_path / "text/table.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    work, split = {row[0]: row[6] for row in rows}, {row[0]: row[5] for row in rows}
    assert work["Author 3/Book 3: a second edition.md"] == work["Author 3/Book 3.md"]
    assert work["Author 5/Tales.md"] == work["Author 5/Book 5.md"]
    assert len(set(work.values())) == 20 and all(split[path] == split[first] for path, first in work.items())
    for name in books.SPLITS:
        lines = (tmp_path / f"text/{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["title"] for line in lines] == [row[1] for row in rows if row[5] == name]


def test_the_split_of_a_work_depends_on_its_path_alone():
    splits = [books.split_of(f"Author/Book {number}.md") for number in range(5000)]
    shares = [splits.count(name) / 5000 for name in books.SPLITS]
    assert all(abs(share - wanted) < 0.01 for share, wanted in zip(shares, (0.96, 0.02, 0.02), strict=True))
