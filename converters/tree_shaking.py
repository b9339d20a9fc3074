"""Finds the definitions of a package that some names need, and of classes the methods that something calls."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import libcst as cst

from zoo.analysis.syntax.modules import Module, Place
from zoo.analysis.syntax.reading import names
from zoo.analysis.syntax.walking import changed

from .errors import ExportError

parsed = cache(Module)  # Parses a module once for all models that include its code; again where its text has changed


class Shaker:
    """Follows names from definition to definition."""

    def __init__(
        self,
        own: Iterable[str],  # Packages with modules to include
        replacement: str = "",  # A module with definitions that replace those that `replaces` names
        replaces: Callable[[str, str], bool] = lambda module, name: False,
        fold: Callable[[Place, Any], Collection[Any]] = lambda definition, node: (node,),  # Changes what is read
        late: Place | None = None,  # A definition that imports inside of functions do not keep
    ) -> None:
        self.own, self.replacement, self.replaces, self.fold = tuple(own), replacement, replaces, fold
        self.late = late
        self.modules: dict[str, Module] = {}
        self.kept: dict[Place, list[Any]] = {}  # Statements
        self.words: set[str] = set()  # Words by which kept statements may read attributes
        # Methods of kept classes that nothing reads yet, with their modules, by name
        self.pending: dict[str, list[tuple[str, cst.FunctionDef]]] = {}

    def module(self, name: str) -> Module:
        if name not in self.modules:
            module = importlib.import_module(name)
            is_package = hasattr(module, "__path__")
            is_empty = is_package and not (module.__file__ and Path(module.__file__).stat().st_size)
            source = "" if is_empty else inspect.getsource(module)  # which refuses an empty file
            self.modules[name] = parsed(name, is_package, source, self.own)
        return self.modules[name]

    def resolve(self, module: str, name: str) -> Place | None:
        """Find where something is defined that a module imports."""
        if self.replaces(module, name):
            return self.replacement, name
        found = self.module(module)
        if name in found.definitions:
            return module, name
        if name in found.imports:
            return self.resolve(*found.imports[name])
        return next(filter(None, (self.resolve(source, name) for source in found.everything_of)), None)

    def needs(self, module: str, names: Iterable[str]) -> Iterator[tuple[str, Place]]:
        """Where the names that a definition of a module mentions are defined."""
        source = self.module(module)
        for name in names:
            is_own = name in source.definitions or name in source.imports
            if is_own and (found := self.found(module, module, name)) is not None:
                yield name, found

    def found(self, importer: str, module: str, name: str) -> Place | None:
        """As `resolve`; ExportError where that is a module, and not one of its definitions."""
        definition = self.resolve(module, name)
        if definition is None and inspect.ismodule(whole := getattr(importlib.import_module(module), name, None)):
            raise ExportError(
                f"{importer} uses the module {whole.__name__}, and a bundle brings single definitions: import them by "
                f"their names (from {whole.__name__} import ...)"
            )
        return definition

    def keep(self, module: str, name: str) -> None:
        """Keep a definition and everything that it needs."""
        waiting = [(module, name)]
        while waiting:
            definition = waiting.pop()
            if definition in self.kept:
                continue
            self.kept[definition] = self.statements(definition)
            for statement in self.kept[definition]:
                dropped = self.unread_methods(definition[0], statement)
                for method in dropped:
                    self.pending.setdefault(method.name.value, []).append((definition[0], method))
                waiting += self.follow(definition[0], statement, dropped)
            while called := self.pending.keys() & self.words:
                for each in called:
                    for owner, called_one in self.pending.pop(each):
                        waiting += self.follow(owner, called_one)

    def statements(self, definition: Place) -> list[Any]:
        """Folded statements of a definition, and of those that describe or fill it."""
        found = self.module(definition[0]).definitions[definition[1]]
        return [folded for each in found for folded in self.fold(definition, each)]

    def follow(self, module: str, node: cst.CSTNode, without: Collection[cst.CSTNode] = ()) -> list[Place]:
        """Note what a tree reads, and return the definitions that it needs."""
        parts: list[cst.CSTNode] = [node]
        if isinstance(node, cst.ClassDef):
            members = (one for one in node.body.body if one not in without)
            parts = [*node.bases, *node.keywords, *node.decorators, *members]
        found: list[Place] = []
        for part in parts:
            read = names(part)
            self.words |= read.words
            for one in read.imports:
                resolved = (self.found(module, *place) for place in self.module(module).own_imports(one).values())
                found += [each for each in resolved if each is not None and each != self.late]
            found += [definition for _, definition in self.needs(module, {*read.read, *read.written})]
        return found

    def unread_methods(self, module: str, statement: cst.CSTNode) -> list[cst.FunctionDef]:
        """Methods of a class that nothing reads: no other code has them in a base, and no kept code has their name."""
        if not isinstance(statement, cst.ClassDef):
            return []
        cls: Any = getattr(importlib.import_module(module), statement.name.value)
        foreign = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in self.own]
        return [
            one
            for one in statement.body.body
            if isinstance(one, cst.FunctionDef)
            and (name := one.name.value) not in self.words
            and (name.startswith("_repr_") or not name.startswith("_"))
            and not any(name in vars(base) for base in foreign)
        ]

    def left(self, definition: Place) -> list[Any]:
        """Kept statements of a definition, classes without the methods that nothing reads."""
        dropped = {id(method) for methods in self.pending.values() for _, method in methods}
        return [
            changed(
                node, body=changed(node.body, body=[one for one in node.body.body if id(one) not in dropped], footer=())
            )
            if isinstance(node, cst.ClassDef)
            else node
            for node in self.kept[definition]
        ]
