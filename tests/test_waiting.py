"""Threads wait shortly in what the zoo starts, unless the user says how they wait."""

import os
import subprocess
import sys

import pytest

from zoo.base.waiting import SHORTLY, short_waits
from zoo.comparison.run.processes import child_environment

SHOW = """
import os, runpy, sys
sys.argv = ["zoo", "--version"]
try:
    runpy.run_module("zoo", run_name="__main__")
finally:
    print({name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")})
"""


@pytest.mark.parametrize("said", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "infinite"}])
def test_what_the_user_says_stays(monkeypatch: pytest.MonkeyPatch, said: dict[str, str]) -> None:
    assert short_waits(said) == {}
    for name in SHORTLY:
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert {name: value for name, value in child_environment().items() if name in SHORTLY} == said


def test_the_command_and_its_processes_wait_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SHORTLY:
        monkeypatch.delenv(name, raising=False)
    assert SHORTLY.items() <= child_environment().items()
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout.splitlines()[-1] == str(SHORTLY)
