"""The explorer as static files: the built page, and the files of models."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from zoo.base.folders import relative_files, written_whole
from zoo.inside.explorer.models import explored, shipped_models

from .models import stored, write_model
from .page import find_page

MODELS, LIST, FILES, INDEX, LESSONS = "models", "index.json", "files.json", "index.html", "lessons"

MARK = " data-lessons"  # Attribute of a page that links to the lessons


def write_site(
    output: str | Path, models: Iterable[str] | Mapping[str, str] = (), *, force: bool = False
) -> dict[str, int]:
    """Write the explorer as static files, which any file server serves and which ask no other host for anything.

    `models` are names of weights, folders or repositories on the Hub, or these by the names that the page shows; by
    default what ships with the zoo. Matrices of large models are rounded; the page states it. Returns sizes in bytes by
    path.
    """
    page = find_page()
    named = dict(models) if isinstance(models, Mapping) else {shown_name(name): name for name in models}
    named = named or {name: name for name in shipped_models()}
    with written_whole(Path(output), force=force) as folder:
        has_lessons = lesson_models(page) <= set(named)
        left_out = shutil.ignore_patterns(*([] if has_lessons else [LESSONS]))
        shutil.copytree(page, folder, dirs_exist_ok=True, ignore=left_out)
        if not has_lessons:
            index = folder / INDEX
            index.write_text(index.read_text(encoding="utf-8").replace(MARK, ""), encoding="utf-8")
        entries = [
            write_model(stored(replace(explored(model), name=name)), folder / MODELS / re.sub(r"[^\w.-]", "--", name))
            for name, model in named.items()
        ]
        write_json(folder / MODELS / LIST, entries)
        write_json(folder / FILES, dict(hashes(folder)))
        return {path: (folder / path).stat().st_size for path in relative_files(folder)}


def lesson_models(page: Path) -> set[str]:
    lessons = (file.read_text(encoding="utf-8") for file in (page / LESSONS).rglob("*.html"))
    return {name for text in lessons for name in re.findall(r'data-(?:model|with)="([^"]+)"', text)}


def shown_name(model: str) -> str:
    """A model's name on the page: of a folder its own name, without where it is."""
    path = Path(model)
    return path.resolve().name if path.is_dir() else model


def hashes(folder: Path) -> Iterator[tuple[str, str]]:
    """Hashes by path, by which the page keeps copies for use without a network."""
    for path in relative_files(folder):
        yield path, hashlib.sha256((folder / path).read_bytes()).hexdigest()[:16]


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
