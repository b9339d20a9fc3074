"""Ctrl-C and kill: the other side stays as it was, and what is on this one is whole."""

import os
import signal
import time
from pathlib import Path

import pytest
from preloaded import run_python, start_python

from .conftest import WRITE, Start, checkpoint, environment, without_attributes, write
from .faults import HELD, Fault
from .loopback import LoopbackHub
from .matrix import pattern

pytestmark = pytest.mark.thorough

WHERE_A_PUSH_STALLS = ["POST .*/create$", "GET .*/xet-write-token/", "POST /v1/xorbs/"]
WHERE_A_PULL_STALLS = ["GET .*/revision/", "GET /xorb/"]


def interrupt(
    hub: LoopbackHub,
    home: Path,
    where: str,
    how: signal.Signals,
    *arguments: object,
    kind: str = "stall",
    since: int = 0,
    **more: str,
) -> tuple[int, str]:
    """Run the command line against a Hub that stalls somewhere, and send it a signal there."""
    hub.clear()
    fault = hub.add(Fault(kind, where=where, since=since))
    words = ["-m", "zoo", *map(str, arguments)]
    with open(os.devnull, "r+") as nothing, (home.parent / "stderr").open("w+") as stderr:
        streams = [nothing.fileno(), nothing.fileno(), stderr.fileno()]
        command = start_python(words, streams, env=environment(hub, home, HF_TOKEN=WRITE, **more))
        deadline = time.monotonic() + 60
        while not fault.happened and command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert fault.happened, (home.parent / "stderr").read_text()
        time.sleep(0.1)
        command.send_signal(how)
        code = command.wait(30)
    hub.clear()
    return code, (home.parent / "stderr").read_text()


@pytest.mark.parametrize("where", WHERE_A_PUSH_STALLS)
def test_an_interrupted_push_changes_nothing(hub: LoopbackHub, tmp_path: Path, where: str) -> None:
    before = hub.storage.put("org/model", checkpoint(b"old"))
    folder = write(tmp_path / "model", checkpoint(b"new"))
    code, errors = interrupt(hub, tmp_path / "home", where, signal.SIGINT, "push", folder, "org/model")
    assert code == 130 and "interrupted; nothing was pushed" in errors and "Traceback" not in errors, errors
    assert hub.storage.repo("org/model")["refs"]["main"] == before


@pytest.mark.parametrize(
    ("where", "kind"), [("POST .*/commit/", "stall"), ("POST .*/commit/", HELD), ("GET .*/tree/", HELD)]
)
def test_an_interrupted_push_reports_whether_its_commit_landed(
    hub: LoopbackHub, tmp_path: Path, where: str, kind: str
) -> None:
    """The last one is at the list of files that follows the commit."""
    hub.storage.put("org/model", checkpoint(b"old"))
    folder = write(tmp_path / "model", checkpoint(b"new"))
    arguments = ("push", folder, "org/model")
    since = 3 if "tree" in where else 0
    code, errors = interrupt(hub, tmp_path / "home", where, signal.SIGINT, *arguments, kind=kind, since=since)
    head = hub.storage.repo("org/model")["refs"]["main"]
    landed = without_attributes(hub.storage.contents("org/model")) == checkpoint(b"new")
    assert code == 130 and landed is (kind == HELD), errors
    expected = f"org/model was pushed (commit {head})" if landed else "may have been made or not; look at http://"
    assert f"interrupted; {'the commit to org/model ' if not landed else ''}{expected}" in errors, errors


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("xet", ["0", "1"], ids=["with-xet", "without"])
def test_a_push_is_interrupted_at_every_request(hub: LoopbackHub, worker: Start, tmp_path: Path, xet: str) -> None:
    hub.storage.put("org/model", checkpoint(b"old"))
    folder = write(tmp_path / "model", checkpoint(b"new"))
    assert worker(HF_HUB_DISABLE_XET=xet)("push", folder, "org/model")["error"] is None
    for number, where in enumerate(dict.fromkeys(map(pattern, hub.log))):
        before = hub.storage.put("org/model", checkpoint(b"old %d" % number))
        write(folder, checkpoint(b"new %d " % number + xet.encode()))
        arguments = ("push", folder, "org/model")
        code, errors = interrupt(hub, tmp_path / "home", where, signal.SIGINT, *arguments, HF_HUB_DISABLE_XET=xet)
        wording = "may have been made or not" if number and "/commit/" in where else "nothing was pushed"
        assert code == 130, where
        assert hub.storage.repo("org/model")["refs"]["main"] == before
        assert wording in errors or "validate" in where, f"{where}: {errors}"


INTERRUPTED_WHERE_NOTHING_IS_RAISED = """
import os, signal
from zoo.hub.pushing import interrupts_heard

class Careless:
    def __del__(self):  # Python goes on after exceptions here
        os.kill(os.getpid(), signal.SIGINT)

try:
    with interrupts_heard() as done:
        careless = Careless()
        del careless
        done.append("all was pushed")
except KeyboardInterrupt as interrupt:
    print(interrupt)
"""


def test_an_interrupt_that_other_code_swallows_is_not_lost() -> None:
    done = run_python(["-c", INTERRUPTED_WHERE_NOTHING_IS_RAISED], env=os.environ)
    assert done.stdout.strip() == "all was pushed", done.stderr


@pytest.mark.parametrize(
    ("where", "how"), [(where, signal.SIGINT) for where in WHERE_A_PULL_STALLS] + [("GET /xorb/", signal.SIGKILL)]
)
def test_an_interrupted_pull_leaves_what_was_there(
    hub: LoopbackHub, tmp_path: Path, where: str, how: signal.Signals
) -> None:
    home, out = tmp_path / "home", tmp_path / "out"

    def pull(*options: str) -> str:
        done = run_python(["-m", "zoo", "pull", "org/model", str(out), *options], env=environment(hub, home))
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
