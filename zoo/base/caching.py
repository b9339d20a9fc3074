"""The user's cache, and what its entries depend on: sources of the zoo and installed distributions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("zoo", "zoo.registry", "zoo.converters")
SOURCES = (".py", ".yaml", ".json", ".jinja", ".csv", ".tsv")


def cache_folder(name: str) -> Path | None:
    """Find the user's folder for what can be made again."""
    usual = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    home = os.path.expanduser("~")
    if not usual and home == "~":  # in containers, the user may have no account
        return None
    return Path(usual or home, "" if usual else ".cache", "transformer-zoo", name)


def sources() -> Iterator[Path]:
    """List the files of the zoo that decide what it does: code, definitions and records."""
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            for folder, folders, names in os.walk(root):
                folders.sort()
                yield from (Path(folder, name) for name in sorted(names) if name.endswith(SOURCES))


def distributions() -> Iterator[str]:
    """List installed distributions with their versions, as their folders are named."""
    for folder in filter(os.path.isdir, sys.path):
        yield from sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))
