"""A small Hugging Face Hub on 127.0.0.1: the part of the protocol that a model's push and pull need, and faults."""

import contextlib
import itertools
import re
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .faults import AFTERWARDS, BOMB, ENDLESS, ETAG, HELD, MISSING, REFUSALS, SAME_PAGE, SIZE, WAITS, Fault
from .messages import Answer, Request, User, json_answer
from .routes import CONTENT_ROUTES, ROUTES
from .storage import Refusal, Storage

MEBIBYTE, MOST_SENT = 1 << 20, 1 << 30  # How much an answer without an end is, in all


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are what the tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class LoopbackHub:
    """The Hub. Its large files are served from a second port, as the Hub serves them from a content network."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(root)
        # Clients remember what they have uploaded to a Hub, whichever repositories it has today.
        self.blocks = root / "blocks"
        self.blocks.mkdir()
        self.users: dict[str, User] = {}
        self.faults: list[Fault] = []
        self.log: list[str] = []
        self.authorized_content: list[str] = []
        self._lock = threading.Lock()
        self._servers = [self._server(content=False), self._server(content=True)]
        ports = [server.server_address[1] for server in self._servers]
        # Clients up to 1.33 tell the Hub from its content network by the host's name alone.
        self.endpoint, self.content = f"http://127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}"

    def _server(self, *, content: bool) -> ThreadingHTTPServer:
        hub = self

        class BoundHandler(Handler):
            pass

        BoundHandler.hub, BoundHandler.serves_content = hub, content
        server = Server(("127.0.0.1", 0), BoundHandler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def close(self) -> None:
        self.clear()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def clear(self) -> None:
        with self._lock:
            for fault in self.faults:
                fault.released.set()
            self.faults.clear()
            self.log.clear()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self.faults.append(fault)
        return fault

    def note(self, request: str) -> Fault | None:
        with self._lock:
            self.log.append(request)
            return next((fault for fault in self.faults if fault.applies(request)), None)


@contextlib.contextmanager
def loopback_hub(root: Path) -> Iterator[LoopbackHub]:
    hub = LoopbackHub(root)
    try:
        yield hub
    finally:
        hub.close()


class Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub
    serves_content: bool
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.respond()

    do_HEAD = do_POST = do_PUT = do_GET

    # One request

    def respond(self) -> None:
        fault = self.hub.note(f"{self.command} {urlsplit(self.path).path}")
        if fault is not None and fault.kind not in AFTERWARDS:
            self.fail_before(fault)
            return
        answer = self.answer(self.read_body())
        if fault is None:
            self.send(answer)
        else:
            self.fail_after(fault, answer)

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, body: bytes) -> Answer:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        routes = CONTENT_ROUTES if self.serves_content else ROUTES
        try:
            for method, pattern, handle in routes:
                match = re.fullmatch(pattern, url.path)
                if match and self.command in method.split():
                    groups = {key: unquote(value) for key, value in match.groupdict().items() if value is not None}
                    return handle(Request(self, body, query, groups))
            raise Refusal(404, f"no such page: {self.command} {url.path}")
        except Refusal as refusal:
            headers = {"X-Error-Message": refusal.message}
            if refusal.code:
                headers["X-Error-Code"] = refusal.code
            return json_answer({"error": refusal.message, **refusal.extra}, refusal.status, headers)

    def send(self, answer: Answer, body: bytes | None = None) -> None:
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body if body is None else body)

    # Faults

    def fail_before(self, fault: Fault) -> None:
        if fault.kind == "stall":
            fault.released.wait(30)
        elif fault.kind in REFUSALS:
            self.read_body()
            headers = {"Retry-After": WAITS[fault.kind]} if fault.kind in WAITS else {}
            if fault.kind == MISSING:
                headers["X-Error-Code"] = "RevisionNotFound"
            reason = fault.value or "on demand"
            if reason.isprintable():  # as the header of an answer has to be
                headers["X-Error-Message"] = reason
            self.send(json_answer({"error": reason}, REFUSALS[fault.kind], headers))
            return
        self.hang_up()

    def fail_after(self, fault: Fault, answer: Answer) -> None:
        body = answer.body
        if fault.kind == ETAG:
            self.send_with(answer, {key: fault.value for key in answer.headers if key in ("ETag", "X-Linked-Etag")})
            return
        if fault.kind == HELD:
            fault.released.wait(30)
            self.hang_up()
            return
        if fault.kind == SIZE:
            self.send_with(answer, {"X-Linked-Size": fault.value})
            return
        if fault.kind == SAME_PAGE:
            self.send_with(answer, {"Link": f'<{self.hub.endpoint}{self.path}>; rel="next"'})
            return
        if fault.kind in (ENDLESS, BOMB):
            self.send_without_end(fault, answer)
            return
        if fault.kind == "flipped":
            if body:
                middle = len(body) // 2
                body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
            self.send(answer, body)
            return
        if fault.kind in ("reset", "truncated") and body and self.command != "HEAD":
            self.send(answer, body[: len(body) // 2])
            self.wfile.flush()
            if fault.kind == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.hang_up()

    def send_with(self, answer: Answer, headers: dict[str, str]) -> None:
        self.send(replace(answer, headers={**answer.headers, **headers}))

    def send_without_end(self, fault: Fault, answer: Answer) -> None:
        """Go on after the answer with blanks, which are no fault of JSON, up to what no client should read."""
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            if key != "Content-Length":
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        if fault.kind == BOMB:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):
            for block in endless(answer.body, packed=fault.kind == BOMB):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                fault.sent += len(block)
            self.wfile.write(b"0\r\n\r\n")
        self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            if not self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[0]:
                self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()


def endless(body: bytes, *, packed: bool) -> Iterator[bytes]:
    """A body and a gigabyte of blanks."""
    pack = zlib.compressobj(wbits=31)
    for block in itertools.chain([body], itertools.repeat(b" " * MEBIBYTE, MOST_SENT // MEBIBYTE)):
        if part := pack.compress(block) if packed else block:
            yield part
    if packed:
        yield pack.flush()
