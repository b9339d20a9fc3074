"""The built page: the one that a release brings, or one that Node builds from the sources in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from zoo.base.errors import UnsupportedOperationError

BUILT = Path(__file__).with_name("page")
"""Where a release has the page; scripts/browser writes it there."""

SOURCES = Path(__file__).parents[3] / "browser"  # Sources in a checkout

MODULES, OUTPUT = "node_modules", "dist"


def find_page() -> Path:
    """Find the page, and build it if only its sources and Node are present; an error if neither is."""
    if (BUILT / "index.html").is_file():
        return BUILT
    if not (SOURCES / "package.json").is_file():
        raise UnsupportedOperationError("this installation has no page for browsers; a release of the zoo brings it")
    return build(SOURCES)


def build(sources: Path) -> Path:
    """Build the page with Node, unless it is as new as its sources.

    Args:
        sources: The folder with package.json.

    Raises:
        UnsupportedOperationError: If Node or npm is missing, or a step fails.
    """
    output = sources / OUTPUT
    if is_current(sources, output):
        return output
    npm = shutil.which("npm")
    if npm is None:
        raise UnsupportedOperationError(
            f"the page for browsers is built from {sources} by Node 20 and npm, which are not installed; a release of "
            "the zoo brings it built"
        )
    if not (sources / MODULES).is_dir():
        run(npm, "ci", "--ignore-scripts", folder=sources)
    run(npm, "run", "build", folder=sources)
    return output


def is_current(sources: Path, output: Path) -> bool:
    built = output / "index.html"
    if not built.is_file():
        return False
    files = (file for file in sources.rglob("*") if not {MODULES, OUTPUT, "tests"} & {*file.relative_to(sources).parts})
    return all(file.stat().st_mtime <= built.stat().st_mtime for file in files if file.is_file())


def run(*command: str, folder: Path) -> None:
    """Run a command, silently if it succeeds."""
    environment = {**os.environ, "PYTHON": sys.executable}  # compresses the engine
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        shown = " ".join(command[1:])
        raise UnsupportedOperationError(f"`npm {shown}` in {folder} failed: {lines[-1] if lines else done.returncode}")
