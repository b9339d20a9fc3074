"""Which source decides a run: the zoo's own, and what a user's or a plugin's module imports of its own kind."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path

import zoo.registry

from .digests import digest_of_named

OWN = ("building", "data", "fast", "models", "training", "variants")
"""The rooms that build, train and score a model. An edit elsewhere changes no result."""

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed distributions, which are identified by their versions."""


@cache
def digest_of_the_zoo() -> str:
    """Short hash of the zoo's own source, so that runs are repeated after an edit that may change them."""
    folder, registry = (Path(module.__file__ or "").parent for module in (zoo, zoo.registry))
    own = [(folder, file) for name in OWN for file in python_files(folder / name)]
    own += [(registry, file) for file in python_files(registry)]
    return digest_of_named({file.relative_to(root.parent).as_posix(): file for root, file in own})


def python_files(place: Path) -> list[Path]:
    """List a file of Python, or those in a folder."""
    return [place] if place.is_file() else list(place.rglob("*.py"))


def digest_of_modules(modules: Iterable[str]) -> str:
    """Make a short name for the source of modules, and of what they import that is neither Python's nor installed."""
    return digest_of_named({name: file for module in modules for name, file in sources_of(module)})


def sources_of(module: str) -> Iterator[tuple[str, Path]]:
    """Follow imports from a module."""
    package = module.partition(".")[0]
    waiting, seen = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = _file_of(name)
        if file is None or not (name.partition(".")[0] == package or _is_a_users(name, file)):
            continue
        yield name, file
        waiting += imported_by(name, file)


def imported_by(module: str, file: Path) -> Iterator[str]:
    """List what a module imports, in functions too."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = resolve_name(relative, package) if node.level else relative
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A module and its packages, in the order of import."""
    parts = name.split(".")
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _file_of(name: str) -> Path | None:
    """The source of a module, found without importing anything; None where there is none."""
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    for depth in range(len(rest)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join((top, *rest[: depth + 1])), spec.submodule_search_locations)
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.origin.endswith(".py") else None


def _is_a_users(name: str, file: Path) -> bool:
    """Whether a module is neither the zoo's, nor Python's, nor of an installed distribution."""
    place = file.resolve()
    installed = place.is_relative_to(STANDARD_LIBRARY) or any(folder in place.parts for folder in INSTALLED)
    return name.partition(".")[0] != "zoo" and not installed
