"""What terminals and notebooks show: the same words, folded for the one and escaped for the other."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from zoo.base.printed import Folded, Note, Page, Part, Picture, Printed, Source, Table, Title, as_html

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


def test_a_class_says_once_what_there_is_to_see() -> None:
    class Shown(Printed):
        def shown(self) -> list[Part]:
            return [Title("This", "and that"), Picture("<svg/>", "(picture)")]

    assert str(Shown()) == "This: and that\n(picture)"
    assert Shown()._repr_html_().endswith("<strong>This</strong> &ensp;and that</p><svg/></div>")
