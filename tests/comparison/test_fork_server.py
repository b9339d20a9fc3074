"""One server for all runs of a command: what each finds imported, how each ends, and that nothing waits for ever."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from zoo.comparison.run.fork_server import status_of
from zoo.comparison.run.launchers import ForkServer

FIRST = """
import os, sys
from pathlib import Path

def main(arguments):
    how, file = arguments[0].split("=")
    Path(file).write_text(str(sorted({"first", "second"} & set(sys.modules))))
    if how == "killed":
        os.kill(os.getpid(), 9)
    return int(how)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "first.py").write_text(FIRST)
    (tmp_path / "second.py").write_text("import first\nmain = first.main\n")
    (tmp_path / "broken.py").write_text("raise ImportError('of no use')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    servers = []

    def start(*modules: str) -> ForkServer:
        servers.append(ForkServer(*modules))
        return servers[-1]

    yield start
    for one in servers:
        one.stop()


@pytest.mark.slow
def test_each_call_has_its_own_process_and_the_imports_of_its_module(server, tmp_path: Path) -> None:
    both = server("first", "second")
    calls = [("second", 0), ("first", 3), ("second", "killed"), ("first", "killed"), ("first", 0), ("second", 7)]
    with ThreadPoolExecutor(3) as pool:
        codes = [*pool.map(lambda n: both.call(calls[n][0], f"{calls[n][1]}={tmp_path / str(n)}"), range(len(calls)))]
    assert codes == [0, 3, -9, -9, 0, 7]
    imported = [(tmp_path / str(number)).read_text() for number in range(len(calls))]
    assert imported == ["['first', 'second']" if module == "second" else "['first']" for module, _ in calls]


@pytest.mark.slow
def test_a_failed_import_of_a_module_is_not_waited_for(server, tmp_path: Path) -> None:
    half = server("first", "broken")
    assert half.call("broken", f"0={tmp_path / 'never'}") != 0 and not (tmp_path / "never").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="runs are forks on Linux alone")
def test_a_process_that_another_thread_collects_has_its_exit_code() -> None:
    """The start of a process collects all that have ended, between the end of one and the wait for it."""
    process = get_context("fork").Process(target=os._exit, args=(3,))
    process.start()
    _, status = os.waitpid(process.pid, 0)
    noted = threading.Timer(0.2, lambda: setattr(process._popen, "returncode", os.waitstatus_to_exitcode(status)))
    noted.start()
    assert status_of(process) == 3


@pytest.mark.slow
def test_an_argument_may_hold_tabs(server, tmp_path: Path) -> None:
    file = tmp_path / "a\tb"
    assert server("first").call("first", f"4={file}") == 4 and file.is_file()
