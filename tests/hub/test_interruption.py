"""Ctrl-C and kill: the other side stays as it was, and what is on this one is whole."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import WRITE, checkpoint, environment, without_attributes, write
from .faults import Fault
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

WHERE_A_PUSH_STALLS = ["POST .*/create$", "POST /v1/xorbs/", "POST .*/validate-yaml$"]
WHERE_A_PULL_STALLS = ["GET .*/revision/", "GET /xorb/"]


def interrupt(hub: LoopbackHub, home: Path, where: str, how: signal.Signals, *arguments: object) -> tuple[int, str]:
    """Run the command line against a Hub that stalls somewhere, and send it a signal there."""
    hub.clear()
    fault = hub.add(Fault("stall", where=where))
    command = subprocess.Popen(
        [sys.executable, "-m", "zoo", *map(str, arguments)],
        env=environment(hub, home, HF_TOKEN=WRITE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not fault.happened and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert fault.happened, command.communicate()
    time.sleep(0.1)
    command.send_signal(how)
    _, errors = command.communicate(timeout=30)
    hub.clear()
    return command.returncode, errors


@pytest.mark.parametrize("where", WHERE_A_PUSH_STALLS)
def test_an_interrupted_push_changes_nothing(hub: LoopbackHub, tmp_path: Path, where: str) -> None:
    before = hub.storage.put("org/model", checkpoint(b"old"))
    folder = write(tmp_path / "model", checkpoint(b"new"))
    code, errors = interrupt(hub, tmp_path / "home", where, signal.SIGINT, "push", folder, "org/model")
    assert code == 130 and "interrupted" in errors and "Traceback" not in errors, errors
    assert hub.storage.repo("org/model")["refs"]["main"] == before


@pytest.mark.parametrize(
    ("where", "how"), [(where, signal.SIGINT) for where in WHERE_A_PULL_STALLS] + [("GET /xorb/", signal.SIGKILL)]
)
def test_an_interrupted_pull_leaves_what_was_there(
    hub: LoopbackHub, tmp_path: Path, where: str, how: signal.Signals
) -> None:
    home, out = tmp_path / "home", tmp_path / "out"

    def pull(*options: str) -> str:
        arguments = [sys.executable, "-m", "zoo", "pull", "org/model", str(out), *options]
        done = subprocess.run(arguments, env=environment(hub, home), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def content() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in out.iterdir() if file.name != ".zoo-pull.json"}

    hub.storage.put("org/model", checkpoint(b"old"))
    assert pull() == str(out)
    hub.storage.put("org/model", checkpoint(b"new"))
    code, errors = interrupt(hub, home, where, how, "pull", "org/model", out)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL), errors
    assert content() == checkpoint(b"old")
    pull("--offline")
    assert content() == checkpoint(b"old")
    pull()
    assert content() == checkpoint(b"new") == without_attributes(hub.storage.contents("org/model"))
