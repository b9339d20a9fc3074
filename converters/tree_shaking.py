"""Finds the definitions of a package that some names need, and of classes the methods that something calls."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ExportError

Import = ast.Import | ast.ImportFrom
Definition = tuple[str, str]  # A module's name and the name of something defined in it

TYPE_CHECKING = "TYPE_CHECKING"


@dataclass
class Module:
    """The source of a module, statement by statement; `own` packages are included."""

    name: str
    is_package: bool
    source: str
    own: tuple[str, ...]
    imports: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    for_types: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    foreign: list[tuple[Import, bool]] = field(default_factory=list, init=False)
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict, init=False)
    effects: dict[str, list[ast.stmt]] = field(default_factory=dict, init=False)  # Statements that fill a name
    everything_of: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)
        self._read(self.tree.body, for_types=False)

    @cached_property
    def lines(self) -> list[str]:
        return self.source.splitlines()

    def _read(self, body: list[ast.stmt], *, for_types: bool) -> None:
        last: str | None = None
        for statement in body:
            names = defined(statement)
            if isinstance(statement, Import):
                self._read_import(statement, for_types)
            elif isinstance(statement, ast.If):
                inner = [name for each in (*statement.body, *statement.orelse) for name in defined(each)]
                for name in inner:
                    self.definitions[name] = [statement]
                if not inner and TYPE_CHECKING in read_names(statement.test)[0]:
                    self._read(statement.body, for_types=True)
            elif isinstance(statement, ast.Try):  # to import what need not be installed
                for each in statement.body:
                    if isinstance(each, ast.Import):
                        self.definitions |= {alias.asname or alias.name: [statement] for alias in each.names}
            elif names:
                for name in names:
                    self.definitions.setdefault(name, []).append(statement)
            match statement:
                case ast.Expr(ast.Constant()) if last is not None:
                    self.definitions[last].append(statement)
                case ast.Expr(ast.Call(ast.Attribute(ast.Name(filled), "update"))):
                    self.effects.setdefault(filled, []).append(statement)
            last = names[0] if names else None

    def _read_import(self, statement: Import, for_types: bool) -> None:
        own = self.own_imports(statement)
        (self.for_types if for_types else self.imports).update(own)
        self.everything_of += [source for source, name in own.values() if name == "*"]
        if not own and getattr(statement, "module", "") != "__future__":
            self.foreign.append((statement, for_types))

    def own_imports(self, statement: Import) -> dict[str, tuple[str, str]]:
        """Names that a statement imports of own packages, each with its module and its name there."""
        pairs = {}
        for alias in statement.names:
            if isinstance(statement, ast.ImportFrom):
                pairs[alias.asname or alias.name] = (self.absolute(statement), alias.name)
            else:
                parent, _, name = alias.name.rpartition(".")
                pairs[alias.asname or alias.name.partition(".")[0]] = (parent, name)
        return {bound: pair for bound, pair in pairs.items() if pair[0].partition(".")[0] in self.own}

    def absolute(self, statement: ast.ImportFrom) -> str:
        """The full name of the module that a statement imports from."""
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        return resolve_name(f"{'.' * statement.level}{statement.module or ''}", package)

    def text(self, statement: ast.stmt) -> str:
        """The source of a statement, with its decorators and the comments right above."""
        return "\n".join(self.lines[slice(*span(self.lines, statement))])


parsed = cache(Module)  # Parses a module once for all models that include its code; again where its text has changed


def defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    single = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in single if isinstance(target, ast.Name)]


Guard = tuple[str, list[ast.stmt]]  # A class, and statements that run for its objects alone


@lru_cache(maxsize=2**14)  # about what a few bundles have in common
def statement_of(text: str) -> ast.stmt:
    """The first statement of a text, which nothing may change."""
    return ast.parse(text).body[0]


@lru_cache(maxsize=2**15)
def read_names(tree: ast.AST, *, weak: bool = False) -> tuple[frozenset[str], frozenset[str], tuple[Guard, ...]]:
    """Names that a statement mentions, names of attributes, and guards; `weak` leaves out what guards guard."""
    names, words, guards = set[str](), set[str](), list[Guard]()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            words.add(node.value)
        match node:
            case ast.If(test=ast.Call(func=ast.Name(id="isinstance"), args=[subject, ast.Name(id=kind)])) if weak:
                guards.append((kind, node.body))
                waiting += [subject, *node.orelse]
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, _]) if weak:
                waiting.append(subject)
            case ast.Compare(left=ast.Call(func=ast.Name(id="type"), args=[subject]), ops=[ast.In()]) if weak:
                waiting.append(subject)
            case ast.Call(func=ast.Name(id="OutputRecorder" as called)) if weak:
                names.add(called)
            case _:
                waiting += ast.iter_child_nodes(node)
    return frozenset(names), frozenset(words), tuple(guards)


@lru_cache(maxsize=2**14)
def imports_in(tree: ast.AST) -> tuple[Import, ...]:
    """Import statements inside of a statement."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, Import))


class Piece(NamedTuple):
    """A statement of a module, as it is kept."""

    text: str
    tree: ast.stmt


class Shaker:
    """Follows names from definition to definition."""

    def __init__(
        self,
        own: Iterable[str],  # Packages with modules to include
        replacement: str = "",  # A module with definitions that replace those that `replaces` names
        replaces: Callable[[str, str], bool] = lambda module, name: False,
        fold: Callable[[Definition, str], str] = lambda definition, text: text,  # Changes source before it is read
        late: Definition | None = None,  # A definition that imports inside of functions do not keep
        *,
        weak: bool = False,  # Whether tests of an object's class and recorders of outputs alone keep no class
    ) -> None:
        self.own, self.replacement, self.replaces, self.fold = tuple(own), replacement, replaces, fold
        self.late, self.weak = late, weak
        self.modules: dict[str, Module] = {}
        self.kept: dict[Definition, list[Piece]] = {}
        self.words: set[str] = set()  # Words by which kept statements may read attributes
        self.mentioned: set[Definition] = set()  # By kept statements, in `isinstance` too
        # Methods of kept classes that nothing reads yet, with their modules and classes, by name
        self.pending: dict[str, list[tuple[str, str, ast.stmt]]] = {}
        # Statements that run for objects of a class that is not kept yet
        self.guarded: dict[Definition, list[tuple[str, list[ast.stmt]]]] = {}

    def module(self, name: str) -> Module:
        if name not in self.modules:
            module = importlib.import_module(name)
            is_package = hasattr(module, "__path__")
            is_empty = is_package and not (module.__file__ and Path(module.__file__).stat().st_size)
            source = "" if is_empty else inspect.getsource(module)  # which refuses an empty file
            self.modules[name] = parsed(name, is_package, source, self.own)
        return self.modules[name]

    def resolve(self, module: str, name: str) -> Definition | None:
        """Find where something is defined that a module imports."""
        if self.replaces(module, name):
            return self.replacement, name
        found = self.module(module)
        if name in found.definitions:
            return module, name
        if name in found.imports:
            return self.resolve(*found.imports[name])
        return next(filter(None, (self.resolve(source, name) for source in found.everything_of)), None)

    def needs(self, module: str, names: Iterable[str]) -> Iterator[tuple[str, Definition]]:
        """Where the names that a definition of a module mentions are defined."""
        source = self.module(module)
        for name in names:
            is_own = name in source.definitions or name in source.imports
            if is_own and (found := self.found(module, module, name)) is not None:
                yield name, found

    def found(self, importer: str, module: str, name: str) -> Definition | None:
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
            self.kept[definition] = self.pieces(definition)
            for where, body in self.guarded.pop(definition, ()):
                waiting += [each for inner in body for each in self.follow(where, inner)]
            for piece in self.kept[definition]:
                dropped = self.unread_methods(definition[0], piece.tree)
                for method in dropped:
                    self.pending.setdefault(method.name, []).append((*definition, method))
                waiting += self.follow(definition[0], piece.tree, dropped)
            while called := self.pending.keys() & self.words:
                for each in called:
                    for owner, _, called_one in self.pending.pop(each):
                        waiting += self.follow(owner, called_one)

    def pieces(self, definition: Definition) -> list[Piece]:
        """Statements of a definition, and those that fill it in its own module: `NAME.update(...)`."""
        module, name = definition
        source = self.module(module)
        statements = (*source.definitions[name], *source.effects.get(name, ()))
        texts = [self.fold(definition, source.text(each)) for each in statements]
        return [Piece(text.strip("\n"), statement_of(text)) for text in texts]

    def follow(self, module: str, statement: ast.AST, without: Iterable[ast.AST] = ()) -> list[Definition]:
        """Note what a statement reads, and return the definitions that it needs."""
        parts: list[ast.AST] = [statement]
        if isinstance(statement, ast.ClassDef):
            left_out = set(map(id, without))
            others = (*statement.bases, *statement.keywords, *statement.decorator_list, *statement.body)
            parts = [part for part in others if id(part) not in left_out]
        names = set[str]()
        found: list[Definition] = []
        guards: list[Guard] = []
        for part in parts:
            mentioned, words, guarded = read_names(part, weak=self.weak)
            names |= mentioned
            self.words |= words
            guards += guarded
            for node in imports_in(part):
                resolved = (self.found(module, *pair) for pair in self.module(module).own_imports(node).values())
                found += [each for each in resolved if each is not None and each != self.late]
        if self.weak:
            self.mentioned |= {definition for _, definition in self.needs(module, read_names(statement)[0])}
        for kind, body in guards:
            of_class = dict(self.needs(module, [kind])).get(kind)
            if of_class is None or of_class in self.kept:
                found += [each for inner in body for each in self.follow(module, inner)]
            else:
                self.guarded.setdefault(of_class, []).append((module, body))
        return found + [definition for _, definition in self.needs(module, names)]

    def unread_methods(self, module: str, statement: ast.stmt) -> list[ast.FunctionDef]:
        """Methods of a class that nothing reads: no other code has them in a base, and no kept code has their name."""
        if not isinstance(statement, ast.ClassDef):
            return []
        cls: Any = getattr(importlib.import_module(module), statement.name)
        foreign = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in self.own]
        return [
            part
            for part in statement.body
            if isinstance(part, ast.FunctionDef)
            and part.name not in self.words
            and (part.name.startswith("_repr_") or not part.name.startswith("_"))
            and not any(part.name in vars(base) for base in foreign)
        ]

    def text(self, definition: Definition) -> str:
        """Kept source of a definition."""
        dropped = {id(method) for methods in self.pending.values() for *_, method in methods}
        texts = []
        for piece in self.kept[definition]:
            body = getattr(piece.tree, "body", [])
            left_out = [part for part in body if id(part) in dropped]
            texts.append(without_lines(piece.text, left_out) if left_out else piece.text)
        return "\n".join(texts)


def without_lines(text: str, statements: Iterable[ast.stmt]) -> str:
    """Text without the lines of some statements, their decorators and the comments right above them."""
    lines = text.split("\n")
    left_out = {line for statement in statements for line in range(*span(lines, statement))}
    kept = "\n".join(line for number, line in enumerate(lines) if number not in left_out)
    return re.sub(r"\n\n\n+", "\n\n", kept).rstrip()


def span(lines: list[str], statement: ast.stmt) -> tuple[int, int]:
    """First line of a statement, with its decorators and the comments right above, and the line after it."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first, statement.end_lineno or statement.lineno
