"""Registries of a test's own, and plugins that are installed for one test."""

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zoo.registry.cards
import zoo.registry.table
import zoo.registry.variants
from zoo.base.errors import UnknownVariantError
from zoo.registry import Registry, Variant
from zoo.registry.plugins import PluginLoader, packages_distributions


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules and distributions that only this test sees, and a loader that has loaded no plugin yet."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("ZOO_PLUGINS", raising=False)
    monkeypatch.setattr(zoo.registry.table, "PLUGINS", PluginLoader())
    packages_distributions.cache_clear()
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
            del sys.modules[name]
    packages_distributions.cache_clear()


@pytest.fixture
def write_module(site: Path) -> Callable[[str, str], None]:
    """Write a module that can be imported."""

    def write(name: str, code: str) -> None:
        (site / f"{name}.py").write_text(textwrap.dedent(code))
        importlib.invalidate_caches()

    return write


@pytest.fixture
def install(site: Path, write_module: Callable[[str, str], None]) -> Callable[..., None]:
    """Install a distribution with one module and, unless `plugin` is empty, a plugin."""

    def install(distribution: str, code: str, *, plugin: str | None = None, value: str | None = None) -> None:
        module = distribution.replace("-", "_")
        write_module(module, code)
        info = site / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "top_level.txt").write_text(f"{module}\n")
        (info / "RECORD").write_text(f"{module}.py,,\n")
        if plugin != "":
            (info / "entry_points.txt").write_text(f"[zoo.plugins]\n{plugin or distribution} = {value or module}\n")
        importlib.invalidate_caches()

    return install


@pytest.fixture
def variants(monkeypatch: pytest.MonkeyPatch) -> Registry[Variant]:
    """A registry of variants without the built-in ones, where `zoo.registry.register` and its siblings look."""
    registry: Registry[Variant] = Registry("variant", error=UnknownVariantError, definition=lambda known: known.code)
    monkeypatch.setattr(zoo.registry.variants, "VARIANTS", registry)
    monkeypatch.setattr(zoo.registry.cards, "VARIANTS", registry)
    return registry
