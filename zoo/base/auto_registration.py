"""Registration with transformers' Auto classes and PEFT, without importing either.

`import zoo` must be enough for `AutoModel.from_pretrained` to load the zoo's checkpoints and for PEFT to know which
layers its adapters go to, must stay cheap, and must work in any order of imports. So registration waits
until transformers' Auto classes, and PEFT's tables, have been imported.

It then waits a little longer. transformers.modeling_layers, for one, imports the Auto classes before it defines its
own, and zoo.models needs both: a hook that ran right after the Auto classes would find transformers half imported. So
the imports under way are counted, and registration runs once the outermost of them has returned.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ZooWarning

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

WATCHED = ("peft", "transformers", "zoo.fast", "zoo.models")
"""Packages that must not be half imported while registration runs."""

REGISTRATIONS = {
    "transformers.models.auto.configuration_auto": "register_config",
    "transformers.models.auto.modeling_auto": "register_models",
    "peft.utils.constants": "register_adapters",
}
"""After which module to call which function of `HOME`."""

HOME = "zoo.models.auto"


def is_watched(name: str) -> bool:
    """Whether a module belongs to one of the packages in `WATCHED`."""
    return name.startswith(WATCHED) and any(name == package or name.startswith(f"{package}.") for package in WATCHED)


def half_imported() -> list[str]:
    return [
        name
        for name, module in list(sys.modules.items())
        if is_watched(name) and getattr(getattr(module, "__spec__", None), "_initializing", False)
    ]


class AutoRegistration:
    """A finder of modules that finds nothing by itself: it notices when imports of watched modules begin and end."""

    def __init__(self) -> None:
        self._pending = dict(REGISTRATIONS)
        self._under_way = 0
        self._lock = threading.RLock()

    def install(self) -> None:
        """Register at once if transformers is there already, and whenever it will be otherwise."""
        sys.meta_path.insert(0, self)
        for name in half_imported():
            importlib.import_module(name)  # waits for another thread to finish it
        self._settle()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a watched module as the other finders do, and wrap its loader."""
        if not self._pending or not is_watched(name):
            return None
        finders = iter(sys.meta_path)
        if self not in finders:  # which also skips those before it
            return None
        for finder in finders:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _WatchedLoader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def begin(self) -> None:
        with self._lock:
            self._under_way += 1

    def end(self, name: str) -> None:
        with self._lock:
            self._under_way -= 1
            outermost = not self._under_way
        if outermost:
            self._settle(ended=name)

    def _settle(self, ended: str | None = None) -> None:
        """Run what is due, unless an import that began before this watcher was installed is still under way."""
        while due := next((module for module in tuple(self._pending) if module in sys.modules), None):
            if set(half_imported()) - {ended}:
                return
            # Forgetting it first keeps the imports that registration itself makes from starting it again.
            if (function := self._pending.pop(due, None)) is not None:
                _register(function, library=due.partition(".")[0])


class _WatchedLoader:
    """Wraps a loader, and calls back after it has loaded."""

    def __init__(self, loader: Any, watcher: AutoRegistration) -> None:
        self._loader = loader
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._watcher.begin()
        try:
            self._loader.exec_module(module)
        finally:
            self._watcher.end(module.__name__)


def _register(function: str, library: str) -> None:
    """Call a registration; where it fails, the library must remain importable all the same."""
    try:
        getattr(importlib.import_module(HOME), function)()
    except Exception as error:
        warnings.warn(
            f"{library} will not know the zoo's checkpoints: {type(error).__name__}: {error}", ZooWarning, stacklevel=2
        )
