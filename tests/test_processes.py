"""Threads wait shortly and memory is kept in what the zoo starts, unless the user has chosen otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.base.processes import KEPT_MEMORY, SHORT_WAITS, process_variables
from zoo.comparison.run.launchers import child_environment

ALL = SHORT_WAITS | KEPT_MEMORY
SHOW = """
import os, runpy, sys
names = sys.argv[1:]
sys.argv = ["zoo", "--version"]
try:
    runpy.run_module("zoo", run_name="__main__")
finally:
    print({name: os.environ.get(name) for name in names})
"""
STEPS = """
import ctypes, resource, sys
if len(sys.argv) > 1:
    from zoo.base.processes import prepare_process
    prepare_process()
libc, place = ctypes.CDLL(None), ctypes.c_void_p()
for step in range(30):
    if step == 20:  # the first steps find how much is needed
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    libc.posix_memalign(ctypes.byref(place), 64, 40_000_000)  # as PyTorch does for a tensor
    ctypes.memset(place, 1, 40_000_000)
    libc.free(place)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ALL or name.startswith(("MALLOC_", "GLIBC_")):
            monkeypatch.delenv(name)


def output(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("chosen", "group"),
    [
        ({"OMP_WAIT_POLICY": "active"}, SHORT_WAITS),
        ({"GOMP_SPINCOUNT": "infinite"}, SHORT_WAITS),
        ({"MALLOC_ARENA_MAX": "1"}, KEPT_MEMORY),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, KEPT_MEMORY),
    ],
)
def test_a_choice_of_the_user_stays(monkeypatch: pytest.MonkeyPatch, chosen: dict, group: dict[str, str]) -> None:
    rest = {name: value for name, value in ALL.items() if name not in group}
    assert process_variables(chosen) == rest
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    found = child_environment()
    assert {name: value for name, value in found.items() if name in ALL or name in chosen} == rest | chosen


def test_the_command_and_its_processes_are_prepared() -> None:
    assert ALL.items() <= child_environment().items() and output(SHOW, *ALL) == str(ALL)


def test_a_script_that_scores_is_prepared_like_a_verb() -> None:
    script = Path(__file__).parents[1] / "scripts/bench/english.py"
    begins = script.read_text("utf-8").partition("from documenting")[0]  # before anything imports torch
    shown = "print({name: os.environ.get(name) for name in sys.argv[1:]}, 'torch' in sys.modules)"
    assert output(f"{begins}\nimport os, sys\n{shown}", *ALL) == f"{ALL} False"


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()), reason="glibc alone keeps memory")
def test_a_step_takes_no_pages_that_the_one_before_had() -> None:
    of_a_tensor = 40_000_000 / os.sysconf("SC_PAGE_SIZE")
    assert int(output(STEPS)) > 9 * of_a_tensor and int(output(STEPS, "prepared")) < 3 * of_a_tensor
