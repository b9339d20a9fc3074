"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def declared_in(file: str) -> dict[str, list[str]]:
    """List modules with the names that a file imports from them for type checkers (`if TYPE_CHECKING`)."""
    blocks = (node for node in ast.parse(Path(file).read_bytes()).body if isinstance(node, ast.If))
    checked = [node for node in blocks if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]
    found: dict[str, list[str]] = {}
    for one in (one for node in checked for one in node.body if isinstance(one, ast.ImportFrom)):
        found.setdefault("." * one.level + (one.module or ""), []).extend(alias.name for alias in one.names)
    return found


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Make a package's `__getattr__` from the names that modules, relative to it, define; those of "." are modules."""
    homes = {name: module for module, names in modules.items() for name in names}

    def look_up(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == ".":
            return importlib.import_module(f".{name}", package)
        return getattr(importlib.import_module(homes[name], package), name)

    return look_up
