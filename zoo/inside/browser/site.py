"""The explorer as static files: the built page, and the files of models."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.base.errors import UnsupportedOperationError
from zoo.base.folders import relative_files, written_whole
from zoo.inside.explorer.models import explored, shipped_models
from zoo.inside.texts import shown_name

from .models import obstacle, stored, write_model

MODELS, LIST, FILES, INDEX, LESSONS = "models", "index.json", "files.json", "index.html", "lessons"

MARK = " data-lessons"  # Attribute of a page that links to the lessons


def write_site(
    output: str | Path, models: Iterable[str] | Mapping[str, str] = (), *, force: bool = False
) -> dict[str, int]:
    """Write the explorer as static files, which any file server serves and which ask no other host for anything.

    `models` are names of weights, folders or repositories on the Hub, or these by the names that the page shows; by
    default what ships with the zoo and the page can show: the others are named on standard error. Matrices of large
    models are rounded; the page states it. Returns sizes in bytes by path.
    """
    page = find_page()
    named = dict(models) if isinstance(models, Mapping) else {shown_name(name): name for name in models}
    with written_whole(Path(output), force=force) as folder:
        entries = list(write_models(named, folder / MODELS))
        lessons = " ".join(file.read_text(encoding="utf-8") for file in (page / LESSONS).rglob("*.html"))
        in_lessons = set(re.findall(r'data-(?:model|with)="([^"]+)"', lessons))
        has_lessons = in_lessons <= {entry["name"] for entry in entries}
        left_out = shutil.ignore_patterns(*([] if has_lessons else [LESSONS]))
        shutil.copytree(page, folder, dirs_exist_ok=True, ignore=left_out)
        if not has_lessons:
            index = folder / INDEX
            index.write_text(index.read_text(encoding="utf-8").replace(MARK, ""), encoding="utf-8")
        write_json(folder / MODELS / LIST, entries)
        # By their hashes the page keeps copies for use without a network.
        hashes = {one: hashlib.sha256((folder / one).read_bytes()).hexdigest()[:16] for one in relative_files(folder)}
        write_json(folder / FILES, hashes)
        return {path: (folder / path).stat().st_size for path in relative_files(folder)}


def write_models(named: Mapping[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """Write models, by default those that ship but for what the page cannot show; their entries in the list."""
    for name, model in (named or {name: name for name in shipped_models()}).items():
        one = replace(explored(model), name=name)
        if not named and (why := obstacle(one)) is not None:
            print(f"Left out: {why}", file=sys.stderr)
        else:
            yield write_model(stored(one), folder / re.sub(r"[^\w.-]", "--", name))


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


BUILT = Path(__file__).with_name("page")  # Where a release has the page; scripts/browser writes it there
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
    """Build the page with Node, unless it is as new as its sources; an error if npm is missing or a step fails."""
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
    environment = {**os.environ, "PYTHON": sys.executable}  # compresses the engine
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        shown = " ".join(command[1:])
        raise UnsupportedOperationError(f"`npm {shown}` in {folder} failed: {lines[-1] if lines else done.returncode}")
