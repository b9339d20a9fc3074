"""The explorer as static files: the built page, and the files of models."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.base.errors import ConfigError
from zoo.base.folders import relative_files, written_whole
from zoo.inside.explorer.models import explored, shipped_models

from .models import write_model
from .page import find_page

MODELS, LIST, FILES = "models", "index.json", "files.json"

GPU_ENGINE = "webgpu"
"""The engine that also runs on GPUs, which the page has only if it is asked for: it is the larger half of a page."""


def write_site(
    output: str | Path, models: Iterable[str] = (), *, webgpu: bool = False, force: bool = False
) -> dict[str, int]:
    """Write the explorer as static files, which any file server serves and which ask no other host for anything.

    Args:
        output: A new folder.
        models: Names of weights, folders or repositories on the Hub; by default everything that ships with the zoo.
        webgpu: Whether to add the engine that runs on a GPU where the browser has one (6 MB).
        force: Whether to replace the folder.

    Returns:
        Size in bytes by path.

    Raises:
        OutputExistsError: If the folder exists.
        ExportError: If a model has a part that cannot be written as a graph.
        UnsupportedOperationError: If there is no built page, and no Node to build it.
    """
    page = find_page()
    names = list(dict.fromkeys(models)) or shipped_models()
    folders = {name: folder_name(name) for name in names}
    if len(set(folders.values())) < len(names):
        raise ConfigError(f"two of these models would have one folder: {', '.join(names)}; rename one")
    with written_whole(Path(output), force=force) as folder:
        left_out = shutil.ignore_patterns("" if webgpu else GPU_ENGINE)
        shutil.copytree(page, folder, dirs_exist_ok=True, ignore=left_out)
        entries = [write_model(explored(name), folder / MODELS / place) for name, place in folders.items()]
        engines = ["wasm", GPU_ENGINE] if webgpu else ["wasm"]
        write_json(folder / MODELS / LIST, {"engines": engines, "models": entries})
        write_json(folder / FILES, dict(hashes(folder)))
        return {path: (folder / path).stat().st_size for path in relative_files(folder)}


def folder_name(model: str) -> str:
    """Name of a model's folder."""
    path = Path(model)
    return re.sub(r"[^\w.-]", "--", path.resolve().name if path.is_dir() else model)


def hashes(folder: Path) -> Iterator[tuple[str, str]]:
    """Hashes by path, by which the page keeps copies for use without a network."""
    for path in relative_files(folder):
        yield path, hashlib.sha256((folder / path).read_bytes()).hexdigest()[:16]


def write_json(path: Path, content: object) -> None:
    """Write a file of JSON."""
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
