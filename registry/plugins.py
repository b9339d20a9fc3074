"""Plugins: other distributions that bring variants and parts, and where registered things come from.

A distribution announces a plugin by an entry point of the group `zoo.plugins`: a module to import or a
function to call without arguments:

    [project.entry-points."zoo.plugins"]
    my-rope = "my_rope.zoo"

The group is version 1 of the interface; a later version has its number, as in `zoo.plugins.v2`. A plugin that is only
for newer versions is left out, with what to install.

Plugins are loaded once, when a name is unknown or when everything is listed. The environment variable `ZOO_PLUGINS`
limits them: `ZOO_PLUGINS=my-rope,other` loads these two, `ZOO_PLUGINS=` loads none.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from zoo.base.errors import PluginWarning, enumerate_names, suggest
from zoo.base.formats import PLUGINS as INTERFACE
from zoo.base.formats import installed_version, this_zoo, upgrade
from zoo.base.interrupts import interrupts_counted

GROUP = INTERFACE.place
SWITCH = "ZOO_PLUGINS"

TIMEOUT = 60.0
"""Seconds for which a thread waits while another one loads plugins. It may be one that a plugin waits for itself."""

BUILT_IN_DISTRIBUTION = "transformer-zoo"


@dataclass(frozen=True)
class Origin:
    """Where a registered thing comes from."""

    module: str  # The module that registered it
    plugin: str | None = None  # The distribution of the plugin that was being loaded then, if any

    @classmethod
    def of(cls, module: str) -> Origin:
        """Origin of an object that a module registers now, with the plugin that is being loaded."""
        origin = cls(module)
        loading = _LOADING.get()
        return origin if origin.built_in or loading is None else cls(module, loading.distribution)

    @cached_property
    def built_in(self) -> bool:
        """Whether it comes with the zoo itself."""
        return self.module.partition(".")[0] == "zoo"

    @property
    def distribution(self) -> str | None:
        """The distribution that provides it, as pip names it; None for scripts and notebooks."""
        if self.built_in:
            return BUILT_IN_DISTRIBUTION
        return self.plugin or next(iter(packages_distributions().get(self.module.partition(".")[0], ())), None)

    @property
    def version(self) -> str | None:
        """The version of that distribution, None where it is not installed."""
        return None if self.distribution is None else installed_version(self.distribution)

    def __str__(self) -> str:
        brought_by = f"{self.distribution or 'no distribution'} {self.version or ''}".rstrip()
        return f"{self.module} ({brought_by})"


@lru_cache(maxsize=1)
def packages_distributions() -> Mapping[str, list[str]]:
    """Distributions by the top-level modules that they bring."""
    return importlib.metadata.packages_distributions()


@dataclass
class Loading:
    """A plugin that is being loaded, and how to take back what it has registered so far."""

    distribution: str | None
    undo: list[Callable[[], None]] = field(default_factory=list)


_LOADING: ContextVar[Loading | None] = ContextVar("loading", default=None)


@contextmanager
def loading_plugin(distribution: str | None) -> Iterator[None]:
    """Name a plugin's distribution as the origin of all that is registered meanwhile, and take it back on failure."""
    loading = Loading(distribution)
    token = _LOADING.set(loading)
    try:
        yield
    except BaseException:
        for undo in reversed(loading.undo):
            undo()
        raise
    finally:
        _LOADING.reset(token)


def on_failed_load(undo: Callable[[], None]) -> None:
    """Describe how to take a registration back, should the plugin that is being loaded fail later."""
    loading = _LOADING.get()
    if loading is not None:
        loading.undo.append(undo)


class PluginLoader:
    """Loads the installed plugins, once; a thread waits `timeout` seconds for another one that loads them."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.timeout = timeout
        self._lock = threading.RLock()
        self._begun = False
        self._done = False

    def load(self) -> None:
        """Load every plugin that `ZOO_PLUGINS` admits.

        A plugin that fails is left out with a `PluginWarning` that names its distribution and the exception; what it
        had registered before it failed is taken back.
        """
        if self._done:
            return
        if not self._lock.acquire(timeout=self.timeout):
            warn(f"another thread has been loading plugins for more than {self.timeout:g} s; theirs are not known yet")
            return
        try:
            if self._begun:  # a plugin that looks something up while it is being loaded
                return
            self._begun = True
            for entry_point in admitted(installed()):
                _load(entry_point)
            for entry_point in too_new():
                warn(
                    f"plugin {entry_point.name!r} of {provider_of(entry_point)} is left out: it is of the group "
                    f"{entry_point.group!r}, and {this_zoo()} reads version {INTERFACE.version}; {upgrade()}"
                )
            self._done = True
        except KeyboardInterrupt:  # the next look-up loads the rest
            self._begun = False
            raise
        finally:
            self._lock.release()


def warn(message: str) -> None:
    warnings.warn(message, PluginWarning, stacklevel=3)


def installed() -> list[EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda plugin: (provider_of(plugin), plugin.name))


def too_new() -> list[EntryPoint]:
    """Find plugins that are installed for newer versions of the interface alone."""
    everything = importlib.metadata.entry_points()
    known = {plugin.name for plugin in installed()}
    groups = {group: re.fullmatch(rf"{re.escape(GROUP)}\.v([0-9]+)", group) for group in everything.groups}
    newer = [group for group, match in groups.items() if match and int(match[1]) > INTERFACE.version]
    return [plugin for group in sorted(newer) for plugin in everything.select(group=group) if plugin.name not in known]


def admitted(plugins: list[EntryPoint]) -> list[EntryPoint]:
    """Choose the plugins that `ZOO_PLUGINS` names; all if it is not set."""
    switch = os.environ.get(SWITCH)
    if switch is None:
        return plugins
    wanted = {name.strip() for name in switch.split(",")} - {""}
    names = sorted({plugin.name for plugin in plugins})
    for missing in sorted(wanted.difference(names)):
        warn(
            f"{SWITCH} names the plugin {missing!r}, which is not installed; "
            f"installed: {enumerate_names(names)}{suggest(missing, names)}"
        )
    return [plugin for plugin in plugins if plugin.name in wanted]


def _load(entry_point: EntryPoint) -> None:
    """Import a plugin, or call it. Its output goes to stderr, as stdout may be read as JSON."""
    error: BaseException | None = None
    with interrupts_counted() as heard:
        try:
            with loading_plugin(entry_point.dist.name if entry_point.dist else None), redirect_stdout(sys.stderr):
                plugin = entry_point.load()
                if not isinstance(plugin, ModuleType):
                    plugin()
        except BaseException as problem:
            error = problem
    if heard:  # Ctrl-C, which code may have swallowed, or made another exception of
        raise KeyboardInterrupt from error
    if error is None:
        return
    warn(
        f"plugin {entry_point.name!r} of {plugin_at_fault(error) or provider_of(entry_point)} is left out: "
        f"{type(error).__name__}: {error}"
    )


def provider_of(entry_point: EntryPoint) -> str:
    distribution = entry_point.dist
    return f"{distribution.name} {distribution.version}" if distribution else "an unknown distribution"


PLUGINS = PluginLoader()  # The one loader that all registries share


def why_missing(distribution: str) -> str:
    if (version := installed_version(distribution)) is None:
        return f"which is not installed; run `pip install {distribution}`"
    return f"but the installed version {version} did not register it; see its warnings and {SWITCH}"


CALL = re.compile(r"([\w.]+)\(\) (?:takes|missing|got) ")
"""The beginning of a TypeError about arguments, which is raised before the function is entered."""


def plugin_modules() -> dict[str, str]:
    """Distributions of plugins with their versions, by the names of their top-level modules."""
    tops: dict[str, str] = {}
    for plugin in installed():
        provider = provider_of(plugin)
        names = [top for top, owners in packages_distributions().items() if plugin.dist and plugin.dist.name in owners]
        tops.update(dict.fromkeys([plugin.module.partition(".")[0], *names], provider))
    tops.pop("zoo", None)
    return tops


def loaded_plugins() -> list[str]:
    return sorted({provider for top, provider in plugin_modules().items() if top in sys.modules})


def plugin_at_fault(error: BaseException) -> str | None:
    tops = plugin_modules()
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        provider = tops.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if provider is not None:
            return f"{provider} ({frame.f_code.co_filename}, line {line})"
    if isinstance(error, TypeError) and (called := CALL.match(str(error))):
        return definition_in_plugin(called[1], tops)
    return None


def definition_in_plugin(qualified_name: str, tops: dict[str, str]) -> str | None:
    """Find a function or class among the modules of plugins, as `plugin_at_fault` reports it."""
    for name, module in list(sys.modules.items()):
        provider = tops.get(name.partition(".")[0])
        if provider is None or not hasattr(module, qualified_name.partition(".")[0]):
            continue
        defined: Any = module
        for part in qualified_name.split("."):
            defined = getattr(defined, part, None)
        if code := getattr(defined, "__code__", None):
            return f"{provider} ({code.co_filename}, line {code.co_firstlineno})"
    return None
