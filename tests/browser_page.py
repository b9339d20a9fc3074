"""What tests of the page for browsers share: whether it can be built here, and a server for it."""

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from chromium import find

from zoo.inside.browser.site import BUILT, MODULES, SOURCES, find_page

BUILDS = shutil.which("npm") is not None and (SOURCES / MODULES).is_dir()
NODE = pytest.mark.skipif(not BUILDS, reason="no npm, or scripts/browser has not installed its packages")
RUNS_PLAYWRIGHT = find() is not None and (SOURCES / MODULES / "@playwright/test").is_dir()
PLAYWRIGHT = pytest.mark.skipif(not RUNS_PLAYWRIGHT, reason="no Chromium, or scripts/browser installed no Playwright")
HAS_PAGE = BUILDS or (BUILT / "index.html").is_file()
PAGE = pytest.mark.skipif(find() is None or not HAS_PAGE, reason="no Chromium, or no built page")

__all__ = ["NODE", "PAGE", "PLAYWRIGHT", "RUNS_PLAYWRIGHT", "find_page", "served"]


class Quiet(SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
