"""Where registered things come from: the module, and the distribution that brought it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache

BUILT_IN_DISTRIBUTION = "transformer-zoo"


@dataclass(frozen=True)
class Origin:
    """Where a registered thing comes from.

    Args:
        module: The module that registered it.
        plugin: The distribution of the plugin that was being loaded then, if any.
    """

    module: str
    plugin: str | None = None

    @classmethod
    def of(cls, module: str) -> Origin:
        """Find the origin of an object that a module registers now.

        Args:
            module: The module's full name.

        Returns:
            Its origin, with the plugin that is being loaded.
        """
        origin = cls(module)
        loading = _LOADING.get()
        return origin if origin.built_in or loading is None else cls(module, loading.distribution)

    @property
    def built_in(self) -> bool:
        """Whether it comes with the zoo itself."""
        return self.module.partition(".")[0] == "zoo"

    @property
    def distribution(self) -> str | None:
        """The distribution that provides it, as pip names it; None for scripts and notebooks."""
        if self.built_in:
            return BUILT_IN_DISTRIBUTION
        return self.plugin or _distribution_of(self.module)

    @property
    def version(self) -> str | None:
        """The version of that distribution, None where it is not installed."""
        if self.distribution is None:
            return None
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def __str__(self) -> str:
        brought_by = f"{self.distribution or 'no distribution'} {self.version or ''}".rstrip()
        return f"{self.module} ({brought_by})"


def _distribution_of(module: str) -> str | None:
    distributions = packages_distributions().get(module.partition(".")[0], ())
    return distributions[0] if distributions else None


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
