import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from preloaded import start_python

from .loopback import LoopbackHub, loopback_hub
from .messages import User
from .storage import Storage

TOKENS = {
    "hf_aliceWritesAllDay": User("alice", orgs=("org",)),
    "hf_aliceOnlyReads000": User("alice", role="read", orgs=("org",)),
    "hf_strangerFromAfar0": User("stranger"),
}
WRITE, READ, STRANGER = TOKENS


def environment(hub: LoopbackHub, home: Path, **more: str) -> dict[str, str]:
    """The environment of a process that knows no Hub but the given one, and nothing of the user's own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))}
    own = {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "0",
        "OMP_NUM_THREADS": "1",
    }
    return {**kept, **own, **more}


class Process:
    """A process of worker.py."""

    def __init__(self, hub: LoopbackHub, home: Path, **more: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.log = home / "stderr.log"
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self._stdin, self._stdout = os.fdopen(ours_in, "w"), os.fdopen(ours_out)
        with self.log.open("w") as log:
            worker = str(Path(__file__).with_name("worker.py"))
            self.python = start_python(
                [worker], [theirs_in, theirs_out, log.fileno()], env=environment(hub, home, **more)
            )
        os.close(theirs_in)
        os.close(theirs_out)
        assert self.read() == "ready"

    def read(self) -> str:
        line = self._stdout.readline().strip()
        assert line or self.python.poll() is None, self.log.read_text()
        return line

    def write(self, line: str) -> None:
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def close(self) -> None:
        self.python.kill()
        self.python.wait()
        self._stdin.close()
        self._stdout.close()


@dataclass
class Worker:
    """A process together with the cache and the token that a test uses it with."""

    process: Process
    cache: Path
    token: str | None

    def start(self, verb: str, *arguments: Any, **options: Any) -> None:
        if verb == "pull":
            options.setdefault("cache_dir", self.cache)
        self.process.write(json.dumps([verb, arguments, options, self.token], default=str))

    def finish(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.process.read())
        assert not answer.pop("waited_too_long"), answer
        return answer

    def __call__(self, verb: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        self.start(verb, *arguments, **options)
        return self.finish()

    def ok(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Run a verb that has to succeed, and return its result."""
        answer = self(verb, *arguments, **options)
        assert answer["error"] is None, answer
        return answer["ok"]

    def refused(self, error: str, words: str, verb: str, *arguments: Any, **options: Any) -> str:
        """Run a verb that has to fail with an error of this name, and return its message, one line with these words."""
        answer = self(verb, *arguments, **options)
        message: str = answer["message"]
        assert answer["error"] == error and words in message and "\n" not in message, answer
        return message


Start = Callable[..., Worker]  # Type of the fixture `worker`: starts a process, by token and environment variables


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process of tests run those that share processes, or each would start its own."""
    for item in items:
        if "processes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("hub"))


@pytest.fixture(scope="session")
def running_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with loopback_hub(tmp_path_factory.mktemp("hub")) as running:
        running.users.update(TOKENS)
        yield running


@pytest.fixture
def hub(running_hub: LoopbackHub, tmp_path: Path) -> Iterator[LoopbackHub]:
    """A Hub without any repository."""
    running_hub.storage = Storage(tmp_path / "hub")
    running_hub.authorized_content.clear()
    running_hub.clear()
    yield running_hub
    running_hub.clear()


@pytest.fixture(scope="session")
def processes(running_hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Process]]:
    """Processes that tests share, because starting one takes longer than most tests."""
    shared: list[Process] = []

    def get(number: int) -> Process:
        while len(shared) <= number:
            shared.append(Process(running_hub, tmp_path_factory.mktemp("process")))
        return shared[number]

    yield get
    for process in shared:
        process.close()


@pytest.fixture
def worker(hub: LoopbackHub, processes: Callable[[int], Process], tmp_path: Path) -> Iterator[Start]:
    """Gives out processes with a cache that is fresh for the test; those with variables of their own are new."""
    own: list[Process] = []
    given: list[Worker] = []

    def get(token: str | None = WRITE, **variables: str) -> Worker:
        if variables:
            own.append(Process(hub, tmp_path / f"home-{len(own)}", **variables))
        process = own[-1] if variables else processes(len(given) - len(own))
        given.append(Worker(process, tmp_path / "cache", token))
        return given[-1]

    yield get
    for process in own:
        process.close()


def safetensors(**tensors: bytes) -> bytes:
    """A valid safetensors file of byte tensors."""
    header, start = {}, 0
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [start, start + len(content)]}
        start += len(content)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def checkpoint(content: bytes = b"first", **config: Any) -> dict[str, bytes]:
    """The files of a small checkpoint, with a README so that none is written."""
    described = {"model_type": "transformer-zoo", "variant": "pre-norm", "note": content.decode(), **config}
    return {
        "README.md": b"---\nlibrary_name: transformer-zoo\n---\n\n# A model, version " + content + b"\n",
        "config.json": json.dumps(described).encode(),
        "model.safetensors": safetensors(weight=content * 50),
        "tokenizer.json": json.dumps({"version": content.decode()}).encode(),
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def without_attributes(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path != ".gitattributes"}


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
