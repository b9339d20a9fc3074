"""Local servers: who may read them, and what is printed where nothing that serves is installed."""

from __future__ import annotations

import asyncio
import re
import runpy
import sys
from collections.abc import Iterator, MutableMapping
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from zoo.base.errors import ConfigError
from zoo.inside.explorer import build_page, launch, publish

if TYPE_CHECKING:
    from zoo.serving.local import LocalServer


@pytest.fixture(scope="module")
def explorer() -> Iterator[LocalServer]:
    pytest.importorskip("gradio", reason='needs pip install "transformer-zoo[explore]"')
    with launch(build_page(["vanilla.en-pt"])) as server:
        yield server


def status(server: LocalServer, path: str, method: str = "GET", **headers: str) -> int:
    """What the server answers; the headers that are left out are a browser's at its address."""
    own = urlsplit(server.address).netloc
    connection = HTTPConnection(own, timeout=30)
    try:
        connection.request(method, path, headers={"Host": own, **{key.title(): one for key, one in headers.items()}})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_page_needs_the_token_in_its_address(explorer: LocalServer) -> None:
    token = f"/{explorer.token}"
    for path in ("/", "/config", "/gradio_api/queue/join", f"{token[:-1]}/", f"//{token}/", f"/x{token}/"):
        assert status(explorer, path) == 401, path
    assert status(explorer, f"{token}/") == status(explorer, f"{token}/config") == 200
    assert status(explorer, "/config", authorization=f"Bearer {explorer.token}") == 200
    assert status(explorer, "/config", authorization="Bearer é") == 401
    assert len(explorer.token) >= 32
    with launch(build_page(["vanilla.en-pt"])) as other:
        assert other.token != explorer.token and other.address != explorer.address


FOREIGN_HOSTS = ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "[::1", "", "@localhost"]
FOREIGN_ORIGINS = ["http://evil.example", "null", "http://localhost", "https://{own}", "http://{own}.evil"]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_site_that_points_its_name_here_is_refused(explorer: LocalServer, host: str) -> None:
    assert status(explorer, f"/{explorer.token}/config", host=host) == 403


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_pages_of_other_sites_are_refused(explorer: LocalServer, origin: str) -> None:
    own = urlsplit(explorer.address).netloc
    for method in ("GET", "POST", "OPTIONS"):
        answer = status(explorer, f"/{explorer.token}/config", method, origin=origin.format(own=own))
        assert answer == 403, method
    assert status(explorer, f"/{explorer.token}/config", origin=f"http://{own}") == 200


def test_a_socket_of_another_site_is_closed() -> None:
    from zoo.serving.local import LocalOnly

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def refuse(*_: Any) -> Any:
        raise AssertionError("the app was called")

    scope = {"type": "websocket", "path": "/token/", "headers": [(b"host", b"evil.example")]}
    asyncio.run(LocalOnly(refuse, "token", ["localhost"])(scope, refuse, send))
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]


def test_names_of_this_machine_are_served(explorer: LocalServer) -> None:
    port = urlsplit(explorer.address).port
    for host in (f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert status(explorer, f"/{explorer.token}/config", host=host, origin=f"http://{host}") == 200


def test_a_taken_port_is_named(explorer: LocalServer) -> None:
    port = urlsplit(explorer.address).port
    with pytest.raises(ConfigError, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use"):
        launch(build_page(["vanilla.en-pt"]), port)


class Launched:
    """A page that notes how it is served."""

    given: dict[str, object]

    def launch(self, **given: object) -> None:
        self.given = given


def test_a_page_is_public_in_a_space_alone(explorer: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.serving.local import LocalServer

    run: list[LocalServer] = []

    def note(server: LocalServer) -> None:
        run.append(server)

    monkeypatch.setattr(LocalServer, "run", note)
    monkeypatch.delenv("SPACE_ID", raising=False)
    publish(build_page(["vanilla.en-pt"], others=False))
    (server,) = run
    assert server.socket.getsockname()[0] == "127.0.0.1" and server.token in server.address
    server.socket.close()

    monkeypatch.setenv("SPACE_ID", "org/model")
    page = Launched()
    publish(page)
    assert page.given["server_name"] == "0.0.0.0" and len(run) == 1


def test_no_other_module_listens() -> None:
    """A new server has to be a `LocalServer`; a Space is public, and llama.cpp's server gets a key of its own."""
    root = Path(__file__).parents[2]
    listens = re.compile(
        r"^\s*(?:import|from) (?:uvicorn|http\.server|socketserver|wsgiref)|page\.launch\(|xllamacpp\.Server\(", re.M
    )
    files = [file for folder in ("zoo", "converters", "registry") for file in (root / folder).rglob("*.py")]
    found = {str(file.relative_to(root)) for file in files if listens.search(file.read_text(encoding="utf-8"))}
    assert found == {"zoo/serving/local.py", "zoo/inside/explorer/page.py", "converters/gguf/serving.py"}
    assert "api_keys" in (root / "converters/gguf/serving.py").read_text(encoding="utf-8")


def test_missing_packages_are_named_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setattr(sys, "argv", ["zoo.serving", "llama-style.char-en"])
    with pytest.raises(SystemExit, match=r"^zoo: error: .*transformer-zoo\[serving\]"):
        runpy.run_module("zoo.serving", run_name="__main__")
