"""Runs of a reproduction, each in its own process, so that none warms anything up for another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def in_fresh_process(script: str, given: list[object], name: str, seed: int, threads: int) -> dict[str, Any]:
    """Call a script that does one run with `--one`, and read its results, a line of JSON at the end."""
    command = [sys.executable, script, *map(str, given), "--threads", str(threads), "--one", name, "--seed", str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    written = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    found: dict[str, Any] = json.loads(written.splitlines()[-1])
    return found
