"""Local web servers: reachable by the host names and the token that were given, and from no other site's pages."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterable
from threading import Thread
from types import TracebackType

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from zoo.base.errors import ConfigError

from .requests import RefusedRequestError

HERE = ("127.0.0.1", "localhost", "::1")  # Names of this machine, which a page of another site does not have
FIRST_PORT, PORTS = 7860, 100  # Where the search for a free port begins, and how many are tried
CLOSING = 2  # Seconds that open connections have to end


class LocalOnly:
    """ASGI middleware: refuse other hosts, other origins, and requests without the token.

    The token is the first part of the path, or the key of an `Authorization: Bearer` header. Host names are checked
    because a site may point its own name to this machine (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str], public: Iterable[str] = ()) -> None:
        self.app = app
        self.token = token
        self.hosts = frozenset(host.lower() for host in hosts)
        self.public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        if (problem := self.foreign(headers)) is not None:
            return await refusal(scope, problem, "permission_error", 403)(scope, receive, send)
        prefix, key = f"/{self.token}", f"Bearer {self.token}".encode()
        if secrets.compare_digest(scope["path"][: len(prefix) + 1].encode(), f"{prefix}/".encode()):
            scope = {**scope, "root_path": scope.get("root_path", "") + prefix}
        elif scope["path"] not in self.public and not any(
            secrets.compare_digest(value.encode(), key) for value in headers.getlist("authorization")
        ):
            missing = "the token is missing: use the address that was printed at the start"
            return await refusal(scope, missing, "authentication_error", 401)(scope, receive, send)

        async def private(message: Message) -> None:
            """The address has the token, so no site that is linked to may see it."""
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"referrer-policy", b"no-referrer")]
            await send(message)

        return await self.app(scope, receive, private)

    def foreign(self, headers: Headers) -> str | None:
        """Find a host or an origin that is not served."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self.hosts:
            return f"host {', '.join(hosts)!r} is not served; valid: {', '.join(sorted(self.hosts))}"
        origins = [value for value in headers.getlist("origin") if value != f"http://{hosts[0]}"]
        return f"requests from {origins[0]!r} are not served" if origins else None


def host_name(host: str) -> str | None:
    """The name in a Host header, None where it has another form."""
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d+)?", host.lower(), re.ASCII)
    return found and (found[1] or found[2])


def refusal(scope: Scope, message: str, kind: str, status: int) -> ASGIApp:
    """Answer with OpenAI's error object."""
    if scope["type"] == "websocket":
        return WebSocketClose(1008)
    return JSONResponse(RefusedRequestError(message, status=status, kind=kind).to_dict(), status)


class LocalServer:
    """An app on a port of this machine, by default the first free one from 7860 on, protected by [`LocalOnly`][].

    As a context manager it serves from a thread until the block ends. `hosts` are further names of this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = HERE[0],
        port: int | None = None,
        token: str | None = None,
        hosts: Iterable[str] = (),
        public: Iterable[str] = (),
    ) -> None:
        self.host = host
        self.token = token or secrets.token_urlsafe(24)
        self.socket = listen(host, port)
        guarded = LocalOnly(app, self.token, {*HERE, host, *hosts}, public)
        config = uvicorn.Config(
            guarded, log_level="warning", proxy_headers=False, server_header=False, timeout_graceful_shutdown=CLOSING
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self.run, daemon=True)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.socket.getsockname()[1]}/{self.token}/"

    def run(self) -> None:
        self._server.run(sockets=[self.socket])

    def __enter__(self) -> LocalServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()


def listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]
    for one in ports:
        try:
            return socket.create_server((host, one), family=family)
        except OSError as error:
            problem = error
    where = f"{host}:{ports[0]}" + (f" to {ports[-1]}" if len(ports) > 1 else "")
    raise ConfigError(f"cannot listen at {where}: {problem.strerror or problem}")
