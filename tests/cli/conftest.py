import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zoo.cli.main import cli

Zoo = Callable[..., Result]


@pytest.fixture
def zoo() -> Zoo:
    """Runs `zoo` in this process: `zoo("show", "vanilla", columns=80)`."""

    def run(*arguments: str, columns: int | None = None, **more: str) -> Result:
        env = {"COLUMNS": None if columns is None else str(columns), "ZOO_TRACEBACK": None, **more}
        return CliRunner().invoke(cli, list(arguments), env=env)

    return run


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `zoo` as a user does, in a process of its own."""

    def run(*arguments: str, code: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        installed = Path(sys.executable).with_name("zoo")
        launcher = [str(installed)] if installed.exists() else [sys.executable, "-m", "zoo"]
        if code is not None:
            launcher = [sys.executable, "-c", code]
        return subprocess.run(
            [*launcher, *arguments], capture_output=True, text=True, env={**os.environ, **env}, timeout=120, check=False
        )

    return run
