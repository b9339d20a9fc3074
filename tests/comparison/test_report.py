"""The report in a real browser: quiet, offline, sortable, legible in the dark, on a telephone and on paper."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from chromium import Page, find
from contrast import contrast
from synthetic_comparison import made_up

from zoo.comparison import Run
from zoo.comparison.display.report.charts import first_cost
from zoo.comparison.display.report.page import pieces, to_html
from zoo.comparison.display.report.svg import Axis
from zoo.comparison.results.summary import summarize

pytestmark = pytest.mark.xdist_group("report")  # one browser serves all tests

VOID = {"meta", "link", "input", "br", "wbr", "hr", "img"}
BLEU = "#table thead th:nth-child(2) button"


@pytest.fixture(scope="module")
def html():
    comparison = made_up(seeds=3)
    failed = Run("deepnorm", "deepnorm", seed=2, error="<b>killed</b> by SIGKILL")
    runs = [failed if run.name == "deepnorm" and run.seed == 2 else run for run in comparison.runs]
    return to_html(summarize(replace(comparison, runs=runs)))


@pytest.fixture(scope="module")
def page(html, tmp_path_factory):
    if find() is None:
        pytest.skip("Chromium is not installed")
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(html, encoding="utf-8")
    page = Page(file)
    yield page
    page.close()


@pytest.fixture(autouse=True)
def as_it_was(request):
    yield
    if "page" in request.fixturenames:
        page = request.getfixturevalue("page")
        page.emulate()
        page.resize(1280)


class Outline(HTMLParser):
    """Reads what a page is made of, and that every element ends where it should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.headings: list[int] = []
        self.tables: list[dict[str, int]] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.labels += given.get("aria-labelledby", "").split()
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append({"caption": 0, "th": 0, "scope": 0})
        elif tag in ("caption", "th") and self.tables:
            self.tables[-1][tag] += 1
            self.tables[-1]["scope"] += tag == "th" and "scope" in given

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()


def test_the_page_is_well_formed_and_accessible(html):
    outline = Outline(html)
    assert outline.open == [] and len(set(outline.ids)) == len(outline.ids) and set(outline.labels) <= set(outline.ids)
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.tables) > 3
    for table in outline.tables:
        assert table["caption"] == 1 and table["scope"] == table["th"] > 0
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    assert {f"#{identity}" for identity in outline.ids} >= {link for link in outline.links if link.startswith("#")}
    for landmark in ("<main ", "<header ", "<nav aria-label", "<footer>", 'lang="en"', "prefers-reduced-motion"):
        assert landmark in html


def test_what_was_written_is_shown_not_run(html):
    assert "<b>killed</b>" not in html and "&lt;b&gt;killed&lt;/b&gt; by SIGKILL" in html
    assert "café &lt;quente&gt; &amp;" in html and "<quente>" not in html
    assert "zoo compare vanilla" in html and "--budget steps=400" in html


def test_colours_have_contrast(html):
    style = html[html.index("<style>") : html.index("</style>")]
    light = dict(re.findall(r"--([\w-]+): (#\w{6})\b", style[: style.index("@media")]))
    dark = dict(re.findall(r"--([\w-]+): (#\w{6})\b", style[style.index("@media") :].split("* {")[0]))
    assert set(light) == set(dark)
    for colors in (light, dark):
        for ground in ("page", "card", "soft"):
            assert min(contrast(colors[name], colors[ground]) for name in ("text", "muted", "accent")) >= 4.5
        for word in ("better", "worse", "noise"):
            assert contrast(colors[word], colors[f"{word}-soft"]) >= 4.5
        assert contrast(colors["accent"], colors["base-soft"]) >= 4.5
        assert contrast(colors["accent-text"], colors["accent"]) >= 4.5
        assert min(contrast(colors[f"s{number}"], colors["card"]) for number in range(8)) >= 3


def test_the_page_is_quiet_and_offline(page):
    for is_open in ("true", "false"):
        page.evaluate(f"document.querySelectorAll('details').forEach(one => {{ one.open = {is_open}; }})")
    assert page.problems == [] and len(page.requests) == 1 and page.requests[0].startswith("file:")


def column(page, place: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#table tbody tr')].map(row => row.cells[{place}].dataset.value)"
    return page.evaluate(rows)


def test_headings_sort_by_click_and_by_key(page):
    given = column(page, 0)
    page.click(BLEU)
    scores = [float(value) for value in column(page, 1)]
    assert scores == sorted(scores, reverse=True) and len(scores) == 8  # the best first
    assert page.evaluate(f"document.querySelector({BLEU!r}).closest('th').ariaSort") == "descending"
    assert page.evaluate("document.getElementById('sorted').textContent") == "Sorted by BLEU, descending"
    page.evaluate(f"document.querySelector({BLEU!r}).focus()")
    page.press("Enter", 13, "\r")
    assert [float(value) for value in column(page, 1)] == scores[::-1]
    page.press(" ", 32, " ")
    assert [float(value) for value in column(page, 1)] == scores
    # What has no number comes last either way, here the baseline's difference from itself.
    for _ in range(2):
        page.click("#table thead th:nth-child(3) button")
        assert column(page, 2)[-1] == "" and "" not in column(page, 2)[:-1]
    page.click("#table thead th:nth-child(1) button")
    assert column(page, 0) == given
    assert page.evaluate("document.querySelectorAll('#table th[aria-sort]:not([aria-sort=none])').length") == 1


def test_readers_choose_what_is_shown(page):
    figures = "[...document.querySelectorAll('#cost figure')].filter(one => one.checkVisibility())"
    visible = f"{figures}.map(one => one.dataset.chart)"
    assert page.evaluate(visible) == ["training_flops"]
    page.click("#cost input[value=decode_latency_p95]")
    assert page.evaluate(visible) == ["decode_latency_p95"]
    shown = page.evaluate("document.querySelector('#cost figure:not([hidden])').textContent")
    assert "On the Pareto front: universal" in shown
    page.press("ArrowLeft", 37)
    assert page.evaluate(visible) == ["decode_latency_p50"]
    more = "document.querySelector('#table td.more').checkVisibility()"
    assert not page.evaluate(more)
    page.click("#all-columns")
    assert page.evaluate(more)
    page.click("#all-columns")
    lines = "[...document.querySelectorAll('.charts [data-variant=\"1\"]')].filter(one => !one.matches('.off')).length"
    assert page.evaluate(lines) > 0
    page.click("[data-toggles='1']")
    assert page.evaluate(lines) == 0
    assert page.evaluate("document.querySelector('[data-toggles=\"1\"]').ariaPressed") == "false"
    page.click("[data-toggles='1']")
    page.click("#copy")
    page.wait("['Copied', 'Selected'].includes(document.getElementById('copy').textContent)")
    assert page.problems == []


def test_dark_mode_applies(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    mark = "getComputedStyle(document.querySelector('#findings .mark')).fill"
    page.emulate(color_scheme="light")
    light = page.evaluate(ground), page.evaluate(mark)
    page.emulate(color_scheme="dark")
    dark = page.evaluate(ground), page.evaluate(mark)
    assert light[0] == "rgb(245, 246, 248)" and dark[0] == "rgb(14, 17, 22)" and light[1] != dark[1]
    page.emulate(reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_overflows(page, width):
    page.resize(width)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    chart = "document.querySelector('#findings .{} svg').checkVisibility()"
    assert page.evaluate(chart.format("narrow")) == (width < 800) != page.evaluate(chart.format("wide"))
    drawn = "[...document.querySelectorAll('main .wide svg, main .narrow svg')].filter(one => one.checkVisibility())"
    scales = f"{drawn}.map(one => one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
    assert 12 * min(page.evaluate(scales)) >= 9  # pixels, of letters in charts


def test_the_page_prints(page):
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = false; })")
    written = page.pdf()
    assert written.startswith(b"%PDF") and 3 <= len(re.findall(rb"/Type\s*/Page\b", written)) <= 18
    page.emulate("print", color_scheme="dark")
    page.resize(960)  # pixels of a sheet of Letter paper between its margins, on its side
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 960
    assert not page.evaluate("document.querySelector('.chooser').checkVisibility()")


@pytest.mark.parametrize("seeds", [1, 2])
def test_small_comparisons_have_reports_too(seeds):
    alone = made_up({"vanilla": (30.0, 1.0)}, seeds=seeds)
    assert Outline(to_html(summarize(alone))).open == []
    pair = made_up({"vanilla": (30.0, 1.0), "of-a-user": (31.0, 1.0)}, seeds=seeds)
    assert "of-a-user" in to_html(summarize(pair))  # not registered here, which the report notes
    failed = replace(pair, runs=[Run(run.name, run.folder, run.seed, error="gone") for run in pair.runs])
    assert "nothing to compare" in to_html(summarize(failed))


def test_ticks_are_round():
    axis = Axis("", 0.3, 9.8, 0, 100, str, 5)
    assert axis.ticks == [2, 4, 6, 8] and (axis(0.3), axis(9.8)) == (0, 100)
    assert Axis("", -0.012, 0.031, 0, 1, str, 4).ticks == pytest.approx([0, 0.02])
    losses = Axis("", 4.2, 17.0, 0, 1, str, 6, is_log=True)
    assert losses.ticks == [5, 10, 15] and losses((4.2 * 17.0) ** 0.5) == pytest.approx(0.5)
    assert Axis("", 0.02, 2.0, 0, 1, str, 4, is_log=True).ticks == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2])


def test_wrong_words_are_marked():
    found = [tuple(piece.values()) for piece in pieces("o gato dorme muito", "o cachorro dorme")]
    assert found == [("o", True), ("gato", False), ("dorme", True), ("muito", False)] and list(pieces("", "a")) == []


def test_the_first_cost_shown_tells_variants_apart():
    assert first_cost(summarize(made_up(seeds=1))) == "training_flops"
    alike = summarize(made_up({"a": (30.0, 1.0), "b": (31.0, 1.0)}, seeds=1))
    assert first_cost(alike) == "train_seconds"
    alike.comparison.runs[1].report["num_parameters"] *= 2
    assert first_cost(summarize(alike.comparison)) == "parameters"


def test_chosen_values_are_shown():
    tried = [
        {"name": name, "values": {"learning_rate": rate}, "loss": loss, "chosen": loss == 2.5, "error": None}
        for name in ("vanilla", "pre-norm")
        for rate, loss in ((1e-3, 2.5), (3e-3, 2.75))
    ]
    failed = {"name": "pre-norm", "values": {"learning_rate": 1.0}, "loss": None, "chosen": False, "error": "no number"}
    sweep = {"values": {"learning_rate": [1e-3, 3e-3]}, "seed": 0, "selected": "loss", "examples": 250}
    comparison = made_up({"vanilla": (30.0, 1.0), "pre-norm": (36.0, 1.0)}, seeds=2, match="params")
    runs = [replace(run, settings={"hidden_size": 96, "max_steps": 400}) for run in comparison.runs_of("pre-norm")]
    changed = replace(comparison, runs=[*comparison.runs[:2], *runs], sweep={**sweep, "runs": [*tried, failed]})
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", to_html(summarize(changed)).replace("<wbr>", "")))
    reported = ("Matched parameters", "Swept learning_rate of 2 values", "Chosen for it: hidden_size = 96", "2.7500 no")
    assert all(one in text for one in reported), text
    elsewhere = to_html(summarize(replace(changed, match_to="post-norm"))).replace("<wbr>", "")
    assert "parameters of post-norm" in elsewhere
    assert "feed-forward (96 → 2048 → 96" in text, "the drawing shows the matched size"
    assert "hidden_size (setting) 128 96" in text and "learning_rate = 1.0 no number no" in text
