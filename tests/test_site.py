"""The documentation site: it builds without a warning, is whole, and asks for nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from browser_page import served
from preloaded import run_fork

import zoo
from zoo.building.settings import setting_cards

ROOT = Path(__file__).parents[1]
CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")

AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}`))"""
"""Asks axe-core for what it calls serious."""

LONG = ("reference/cli.html", "reference/zoo.data.tasks.html")  # Pages on which axe-core takes minutes

CONTRAST = 4.5  # Least contrast of letters and background (WCAG 2.2, success criterion 1.4.3)

SCHEMES = {"light": "default", "dark": "slate"}
"""Names of the color scheme in the theme, by the preference of the system."""

SETTLED = "!document.getAnimations().some(one => one instanceof CSSTransition)"
"""That no colour or place is on its way to another."""

KINDS = (
    *("index.html", "pt/index.html", "results.html", "gallery/index.html", "gallery/vanilla.html"),
    *("gallery/post-norm--pre-norm.html", "notebooks/price-of-bugs.html", "reference/settings.html"),
    *("reference/cli.html", "reference/zoo.data.tasks.html", "source/zoo/comparison/benchmarks.html"),
)
"""A page of every kind."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]  # one build serves all


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site; not `--quiet`, which keeps warnings from `--strict`, too."""
    command = ["-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "ZOO_SITE_CODE": "pre-norm,post-norm"}
    return run_fork(command, cwd=root, env=env)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[gone](gone.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: a test\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1 and "contains a link 'gone.md'" in done.stderr


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address.removesuffix("/")


def test_everything_public_has_its_place(site: Path) -> None:
    for name in zoo.list_variants():
        assert f'alt="One block of {name}"' in (site / f"gallery/{name}.html").read_text()
        assert (site / f"gallery/{name}.svg").is_file()
    card = (site / "gallery/vanilla.html").read_text()
    assert all(f'id="{part}"' in card for part in ("settings", "weights", "exports", "side-by-side"))
    page = (site / "gallery/pre-norm.html").read_text()
    assert "class DecoderLayer" in re.sub("<[^>]*>", "", page)
    steps = (site / "gallery/pre-norm--post-norm--code.html").read_text()
    assert "Post-norm: the sum is normalised" in re.sub("<[^>]*>", "", steps)
    assert 'id="results"' in (site / "gallery/pre-norm.html").read_text()
    settings = (site / "reference/settings.html").read_text()
    for card in setting_cards():
        assert f'id="{card.name}"' in settings and all(f"<code>{value}</code>" in settings for value in card.values)
    python = (site / "reference/python.html").read_text()
    assert all(f"zoo.{name}" in python for name in zoo.__all__ if not name.startswith("_"))
    command = (site / "reference/cli.html").read_text()
    assert "Sentinel" not in command
    assert all(verb in command for verb in ("zoo compare", "zoo bench run", "--learning-rate", "--set"))


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, as a package for Python brings it; empty where that is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    places = found.submodule_search_locations if found else None
    return Path(places[0], "axe.min.js").read_text(encoding="utf-8") if places else ""


def complaints(page: chromium.Page, address: str, paths: list[str], axe: str = "") -> dict[str, list[str]]:
    """Open pages in the light, in the dark and in the width of a telephone, and list what is wrong with each.

    The first page is opened in the light and turned dark while it is open, the second one the other way round. The dark
    changes colours only, which this project's own checks cover.
    """
    found: dict[str, list[str]] = {}
    for number, path in enumerate(paths):
        schemes = ("light", "dark") if number % 2 == 0 else ("dark", "light")
        page.emulate(color_scheme=schemes[0])
        page.resize(1280)
        visit(page, address, path)
        asked = axe and path not in LONG
        if asked:
            page.evaluate(f"{axe}; null")
        for scheme in schemes:
            page.emulate(color_scheme=scheme)
            page.wait(f"document.body.dataset.mdColorScheme === '{SCHEMES[scheme]}'")
            for width in (1280, 360) if scheme == "light" else (1280,):
                page.resize(width)
                page.wait(SETTLED)
                said = [
                    *page.evaluate(f"({CHECKS})({CONTRAST})"),
                    *(page.evaluate(AXE) if asked and scheme == "light" else ()),
                    *page.problems,
                ]
                page.problems.clear()
                if said:
                    found[f"{path}, {scheme}, {width} pixels"] = said
    return found


def visit(page: chromium.Page, address: str, path: str) -> None:
    page.send("Page.navigate", url=f"{address}/{path}")
    page.wait(f"location.pathname.endsWith('/{path}') && document.readyState === 'complete'")


@pytest.fixture
def page(site: Path) -> Iterator[chromium.Page]:
    if chromium.find() is None:
        pytest.skip("there is no Chromium")
    opened = chromium.Page(site / "gallery/vanilla.svg")
    yield opened
    opened.close()


@pytest.mark.parametrize("which", ["one of each kind", pytest.param("every one", marks=pytest.mark.nightly)])
def test_pages_can_be_read_in_the_light_in_the_dark_and_on_a_telephone(
    which: str, site: Path, address: str, page: chromium.Page, axe: str
) -> None:
    """Letters have contrast, images are there, nothing is wider than the window, and nothing comes from elsewhere.

    axe-core finds nothing serious on a page of every kind.
    """
    every = sorted(str(file.relative_to(site)) for file in site.rglob("*.html"))
    assert set(KINDS) < set(every)
    found = complaints(page, address, every) if which == "every one" else complaints(page, address, list(KINDS), axe)
    assert found == {}
    assert [one for one in page.requests if one.startswith("http") and not one.startswith(address)] == []


def test_what_cannot_be_read_is_found(address: str, page: chromium.Page) -> None:
    visit(page, address, "start.html")
    worse = {
        "hard to read, p. ": "document.querySelector('.md-content p').style.color = '#aaa'",
        "pixels wider than the window": "document.querySelector('.md-content p').style.minWidth = '2000px'",
        "no image: ": "document.querySelector('.md-content p').append(Object.assign(new Image(), {src: 'gone.png'}))",
    }
    for complaint, change in worse.items():
        assert not any(complaint in one for one in page.evaluate(f"({CHECKS})({CONTRAST})"))
        page.evaluate(f"void ({change})")
        assert any(complaint in one for one in page.evaluate(f"({CHECKS})({CONTRAST})"))


def test_pages_opened_as_files_are_searched(site: Path, page: chromium.Page) -> None:
    for path in ("index.html", "gallery/index.html"):
        visit(page, site.as_uri(), path)
        page.evaluate("document.querySelector('.md-search__input').focus()")
        page.send("Input.insertText", text="deepnorm")
        # What is typed before the index is there is looked for at the next key.
        key = "document.querySelector('.md-search__input').dispatchEvent(new Event('keyup'))"
        page.wait(f"({key}, document.querySelector('.md-search-result__item a'))")
        assert "deepnorm" in page.evaluate("document.querySelector('.md-search-result__list').textContent").lower()
    assert page.problems == []
    assert [one for one in page.requests if not one.startswith(("file:", "data:", "about:"))] == []


def test_the_code_of_the_front_pages_is_not_cut(address: str, page: chromium.Page) -> None:
    page.resize(1280)
    for path in ("index.html", "pt/index.html"):
        visit(page, address, path)
        blocks = "[...document.querySelectorAll('pre > code')]"
        assert page.evaluate(f"{blocks}.length") > 3
        assert page.evaluate(f"{blocks}.filter(one => one.scrollWidth > one.clientWidth).length") == 0


def test_the_gallery_is_filtered(address: str, page: chromium.Page) -> None:
    page.resize(1280)
    visit(page, address, "gallery/index.html")
    page.wait("document.querySelector('.gallery-filter button')")
    shown = "[...document.querySelectorAll('.gallery-card')].filter(one => !one.hidden).length"
    assert page.evaluate(shown) == len(zoo.list_variants())
    page.click('[data-word="task:masked-lm"]')
    assert page.evaluate(shown) == len(zoo.list_variants(task="masked-lm"))
    page.click('[data-word="task:masked-lm"]')
    assert page.evaluate(shown) == len(zoo.list_variants())
    page.click('[data-word="position:rotary"]')
    assert 1 < page.evaluate(shown) < len(zoo.list_variants())
    page.click('[data-word="task:masked-lm"]')
    page.click('[data-word="position:t5"]')
    assert page.evaluate(shown) == 0 and page.evaluate("!document.querySelector('.gallery-none').hidden")
    assert page.problems == []
