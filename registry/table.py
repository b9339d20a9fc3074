"""Named tables of things of one kind."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, overload

from zoo.base.deprecation import warn_deprecated
from zoo.base.errors import MissingPluginError, NameCollisionError, RegistrationError, UnknownNameError

from .names import is_word
from .plugins import PLUGINS, Origin, on_failed_load, why_missing

if TYPE_CHECKING:
    from typing import Unpack

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """An object of a module, which is imported when the object is used."""

    path: str  # "module:object", as in entry points

    def load(self) -> Any:
        module, _, name = self.path.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise RegistrationError(f"{self.path!r} was registered, but cannot be imported: {error}") from error

    def docstring(self) -> str:
        """The object's docstring, from the source where that is there, so that nothing is imported."""
        module, _, name = self.path.partition(":")
        top, *rest = module.split(".")
        places: Iterable[str] = () if (spec := find_spec(top)) is None else spec.submodule_search_locations or ()
        for file in (Path(place, *rest).with_suffix(".py") for place in places if rest):
            if file.is_file():
                for node in ast.parse(file.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                        return ast.get_docstring(node) or ""
        return inspect.getdoc(self.load()) or ""


@dataclass
class Entry(Generic[T]):
    """What a registry has under a name."""

    name: str
    held: T | Reference
    origin: Origin
    deprecated: str | None
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Alias:
    target: str
    origin: Origin
    deprecated: str | None


class _Options(TypedDict, total=False):
    """Options of `Registry.register`."""

    aliases: Iterable[str]
    override: bool
    deprecated: str | None
    deviations: Iterable[str]
    module: str | None


class Registry(Generic[T]):
    """A table of named things of one kind, which plugins may add to.

    Built-in things are registered when the module `built_in` is imported, which happens on the first look-up, and
    before anybody else registers: so their names are taken in any order of imports. Plugins are loaded when a name is
    still unknown then, or when everything is listed. Every look-up raises `error` for a name that nothing has.

    Args:
        kind: Kind of the things, for messages: "variant", "position", ...
        built_in: The module that registers the built-in things when it is imported, if any.
        error: Raised for unknown names.
        definition: The class or function that defines a value. The same definition may register again, as it does when
            its module is reloaded or its notebook cell runs again.
    """

    def __init__(
        self,
        kind: str,
        *,
        built_in: str | None = None,
        error: type[UnknownNameError] = UnknownNameError,
        definition: Callable[[T], object] = lambda value: value,
    ) -> None:
        self.kind = kind
        self._built_in = built_in
        self._error = error
        self._definition = definition
        self._items: dict[str, Entry[T] | _Alias] = {}
        self._lock = threading.RLock()

    @overload
    def register(self, name: str, value: None = None, **options: Unpack[_Options]) -> Callable[[T], T]: ...

    @overload
    def register(self, name: str, value: T, **options: Unpack[_Options]) -> T: ...

    def register(
        self,
        name: str,
        value: T | None = None,
        *,
        aliases: Iterable[str] = (),
        override: bool = False,
        deprecated: str | None = None,
        deviations: Iterable[str] = (),
        module: str | None = None,
    ) -> T | Callable[[T], T]:
        """Add a thing, directly or as a decorator.

        Args:
            name: Its name: letters, digits, dots, hyphens and underscores.
            value: The thing; if it is left out, a decorator is returned.
            aliases: Other names for it. They work, but are not listed.
            override: Whether it may take names that others have.
            deprecated: Why its name should no longer be used, and what instead. It still works, with a warning, and is
                not listed.
            deviations: How it differs from its paper, a sentence each.
            module: The module that registers it, if not the caller.

        Returns:
            The thing, or the decorator, which returns the thing.

        Raises:
            RegistrationError: When the name cannot be a name.
            NameCollisionError: When a name is taken. The message names the owner.
        """
        origin = Origin.of(module or sys._getframe(1).f_globals.get("__name__", "__main__"))
        aliases = tuple(aliases)
        if name in aliases:
            raise RegistrationError(f"{self.kind} {name!r} was given as an alias of itself; give another name")

        def add(value: T) -> T:
            if not origin.built_in:
                self._load_built_in()
            entry = Entry(name, value, origin, deprecated, tuple(deviations))
            others = {alias: _Alias(name, origin, None) for alias in aliases}
            with self._lock:
                replaced = self._items.get(name)
                renewed = isinstance(replaced, Entry) and self._is_same(replaced, entry)
                self._put({name: entry, **others}, override, renewed)
            return value

        return add if value is None else add(value)

    def register_lazily(self, name: str, path: str, **options: Unpack[_Options]) -> None:
        """Add a thing that is imported when it is looked up; listing it imports nothing.

        `path` is where it is, "module:object"; the rest is as for [`register`][zoo.registry.table.Registry.register].
        """
        module = sys._getframe(1).f_globals.get("__name__", "__main__")
        self.register(name, Reference(path), **{"module": module, **options})  # type: ignore[arg-type]

    def alias(self, name: str, target: str, *, override: bool = False, deprecated: str | None = None) -> None:
        """Add another name for the thing called `target`, for instance the one it had before.

        Arguments and errors are those of [`register`][zoo.registry.table.Registry.register].
        """
        origin = Origin.of(sys._getframe(1).f_globals.get("__name__", "__main__"))
        target = self.canonical(target)
        if target == name:
            raise RegistrationError(f"{self.kind} {name!r} was given as an alias of itself; give another name")
        with self._lock:
            self._put({name: _Alias(target, origin, deprecated)}, override, renewed=False)

    def get(self, name: str, *, provider: str | None = None) -> T:
        """Look a thing up by its name or an alias. A deprecated alias gives a `DeprecatedNameWarning`.

        Args:
            provider: The distribution that should bring it, where that is known.

        Raises:
            MissingPluginError: When nothing has the name, or the zoo alone, and `provider` should have brought it.
        """
        if provider is not None:
            self._check_provider(name, provider)
        entry = self.entry(name)
        for deprecated in dict.fromkeys((self._items[name].deprecated, entry.deprecated)):
            if deprecated is not None:
                warn_deprecated(f"{self.kind} {name!r}", deprecated)
        if isinstance(entry.held, Reference):
            entry.held = entry.held.load()
        return entry.held  # type: ignore[return-value]

    def _check_provider(self, name: str, provider: str) -> None:
        """Load plugins that may replace a name of the zoo; raise where `provider` brought none."""
        if name in self and self.origin(name).built_in:
            PLUGINS.load()
        if name not in self or self.origin(name).built_in:
            problem = f"{self.kind} {name!r} comes from the plugin {provider!r}"
            raise MissingPluginError(f"{problem}, {why_missing(provider)}")

    def canonical(self, name: str) -> str:
        """The name under which a thing is listed, by its name or an alias."""
        return self.entry(name).name

    def origin(self, name: str) -> Origin:
        """The module that registered a thing, and that module's distribution."""
        return self.entry(name).origin

    def deviations(self, name: str) -> tuple[str, ...]:
        """List how a thing differs from its paper."""
        return self.entry(name).deviations

    def summary(self, name: str) -> str:
        """Describe a thing by the first line of its docstring, without importing it where it is registered lazily."""
        held = self.entry(name).held
        text = held.docstring() if isinstance(held, Reference) else held.__doc__ or ""
        return inspect.cleandoc(text).partition("\n")[0]

    def names(self) -> list[str]:
        """List everything, plugins' things included: sorted names, without aliases and deprecated ones."""
        self._load_built_in()
        PLUGINS.load()
        with self._lock:
            items = list(self._items.items())
        return sorted(name for name, item in items if isinstance(item, Entry) and item.deprecated is None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._items or self._look_up(name) is not None)

    def __repr__(self) -> str:
        return f"<registry of {self.kind} names: {', '.join(sorted(self._items)) or 'none yet'}>"

    def _load_built_in(self) -> None:
        # Never under the lock: the import system has its own locks, and another thread may hold them and want ours.
        if self._built_in is not None:
            importlib.import_module(self._built_in)

    def _look_up(self, name: str) -> Entry[T] | _Alias | None:
        if name not in self._items:
            self._load_built_in()
        if name not in self._items:
            PLUGINS.load()
        return self._items.get(name)

    def entry(self, name: str) -> Entry[T]:
        """A thing by its name or an alias, with its origin; without the warning of a deprecated name."""
        if (item := self._items.get(name) or self._look_up(name)) is None:
            raise self._error(name, self.names(), kind=self.kind)
        return self.entry(item.target) if isinstance(item, _Alias) else item

    def _is_same(self, old: Entry[T], new: Entry[T]) -> bool:
        """Whether an entry is what another one is already, perhaps from an earlier run of the same code."""
        if isinstance(old.held, Reference) or isinstance(new.held, Reference):
            return old.held == new.held and old.origin.module == new.origin.module
        before, now = self._definition(old.held), self._definition(new.held)
        known = getattr(before, "__qualname__", None)
        alike = before == now or (known is not None and known == getattr(now, "__qualname__", None))
        return before is now or (alike and old.origin.module == new.origin.module)

    def _put(self, new: dict[str, Entry[T] | _Alias], override: bool, renewed: bool) -> None:
        """Add names, all or none of them."""
        for name, item in new.items():
            if not is_word(name):
                raise RegistrationError(
                    f"{self.kind} name {name!r} was given; valid are letters, digits, '.', '-' and '_', "
                    "a letter or digit first"
                )
            taken = self._items.get(name)
            same = renewed if isinstance(item, Entry) else isinstance(taken, _Alias) and taken.target == item.target
            if taken is not None and not (override or same):
                problem = f"{self.kind} {name!r} of {item.origin} exists already, from {taken.origin}"
                raise NameCollisionError(f"{problem}; choose another name, or give override=True")
        before = {name: self._items.get(name) for name in new}
        self._items.update(new)
        if not next(iter(new.values())).origin.built_in:
            on_failed_load(lambda: self._put_back(before))

    def _put_back(self, before: dict[str, Entry[T] | _Alias | None]) -> None:
        with self._lock:
            for name, item in before.items():
                if item is None:
                    self._items.pop(name, None)
                else:
                    self._items[name] = item
