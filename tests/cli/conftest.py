import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from command_line import run


@pytest.fixture
def zoo() -> Callable[..., Result]:
    """Runs `zoo` in this process, for files in which `zoo` is no module."""
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
