import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.registry import CORPORA, Corpus, CorpusFile, register_corpus

DOCUMENTS = [f"Document {number} says {'very ' * (number % 7)}little.\nIts second line." for number in range(60)]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)


def jsonl(file: Path, documents: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return file


class Origin:
    """A server of files on 127.0.0.1 that understands ranges, and can break off in the middle of a file."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.breaks_after: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, wanted = unquote(self.path).lstrip("/"), self.headers.get("Range")
                origin.asked.append((path, wanted))
                if path not in origin.files:
                    self.send_error(404)
                    return
                content = origin.files[path]
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(len(content) - start))
                if wanted:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.end_headers()
                self.wfile.write(content[start:][: origin.breaks_after])
                self.close_connection = True

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def origin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    made = Origin()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of corpora."""
    home = tmp_path / "zoo-data"
    monkeypatch.setenv("ZOO_DATA", str(home))
    return home


@pytest.fixture
def corpus(origin: Origin) -> Iterator[Callable[..., Corpus]]:
    """Registers a corpus of files that the origin has."""
    names = []

    def register(name: str, files: dict[str, bytes], **more: str) -> Corpus:
        origin.files.update(files)
        listed = tuple(CorpusFile(path, hashlib.sha256(text).hexdigest(), len(text)) for path, text in files.items())
        made = Corpus(name, "For tests.", "en", "CC0-1.0", "here", url=origin.url, files=listed, **more)
        register_corpus(made)
        names.append(name)
        return made

    yield register
    for name in names:
        del CORPORA._items[name]
