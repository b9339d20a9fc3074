"""The documentation site: it builds without a warning, is whole, and asks for nothing from elsewhere."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import chromium
import pytest

import zoo
from zoo.settings import setting_cards

pytest.importorskip("mkdocstrings", reason="the site needs Python 3.11")

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]  # one build serves all


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_everything_public_has_its_place(site: Path) -> None:
    for name in zoo.list_variants():
        assert f'alt="One block of {name}"' in (site / f"gallery/{name}.html").read_text()
        assert (site / f"gallery/{name}.svg").is_file()
    card = (site / "gallery/vanilla.html").read_text()
    assert all(f'id="{part}"' in card for part in ("settings", "weights", "exports", "side-by-side"))
    assert 'id="results"' in (site / "gallery/pre-norm.html").read_text()
    settings = (site / "reference/settings.html").read_text()
    for card in setting_cards():
        assert f'id="{card.name}"' in settings
        assert all(f"<code>{value}</code>" in settings for value in card.values)
    python = (site / "reference/python.html").read_text()
    assert all(f"zoo.{name}" in python for name in zoo.__all__ if not name.startswith("_"))
    command = (site / "reference/cli.html").read_text()
    assert "Sentinel" not in command
    assert all(verb in command for verb in ("zoo compare", "zoo bench run", "--learning-rate", "--set"))


@pytest.mark.skipif(chromium.find() is None, reason="there is no Chromium")
def test_a_reader_leafs_through_it(site: Path, address: str) -> None:
    page = chromium.Page(site / "gallery/vanilla.svg")
    try:
        for width, path in ((1280, "index.html"), (420, "gallery/vanilla.html"), (420, "reference/settings.html")):
            page.resize(width)
            page.send("Page.navigate", url=f"{address}/{path}")
            page.wait(f"location.pathname === '/{path}' && document.readyState === 'complete'")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            broken = "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"
            assert page.evaluate(broken) == []
        page.resize(1280)
        page.send("Page.navigate", url=f"{address}/gallery/index.html")
        page.wait("document.readyState === 'complete' && document.querySelector('.gallery-filter button')")
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
        elsewhere = [one for one in page.requests if one.startswith("http") and not one.startswith(address)]
        assert elsewhere == []
        assert page.problems == []
    finally:
        page.close()
