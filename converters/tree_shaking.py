"""Takes out of a package's source files the definitions that some names need, and makes flat modules of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property


def write_module(shaker: Shaker, module: str, names: dict[str, str]) -> str:
    """Write what is kept of a module."""
    source = shaker.module(module)
    statements = {id(s): s for name in shaker.kept[module] for s in source.definitions[name]}
    statements |= {id(effect): effect for effect in shaker.kept_effects.get(module, [])}
    ordered = sorted(statements.values(), key=lambda statement: statement.lineno)
    body = join_statements(source, ordered)
    used = set(re.findall(r"\w+", body))

    for_types = own_imports(shaker, source.for_types, used, names) + foreign_imports(source, used, for_types=True)
    if for_types:
        used.add(TYPE_CHECKING)
    blocks = [
        foreign_imports(source, used, for_types=False),
        own_imports(shaker, source.imports, used, names),
        ["if TYPE_CHECKING:", *(f"    {line}" for line in for_types)] if for_types else [],
    ]
    head = [f'"""{source.doc}\n"""' if "\n" in source.doc else f'"""{source.doc}"""', "", *future(source)]
    head += [line for block in blocks if block for line in (*block, "")]
    return "\n".join(head) + "\n" + rewrite_inner_imports(source, body, names) + "\n"


def foreign_imports(source: Module, used: set[str], *, for_types: bool) -> list[str]:
    """Imports of other packages."""
    lines = []
    for statement, only_types in source.foreign:
        kept = [alias for alias in statement.names if (alias.asname or alias.name).partition(".")[0] in used]
        if kept and only_types == for_types:
            lines.append(ast.unparse(type(statement)(**{**statement.__dict__, "names": kept})))
    return lines


def own_imports(shaker: Shaker, table: dict[str, tuple[str, str]], used: set[str], names: dict[str, str]) -> list[str]:
    """Imports of modules that are taken along."""
    gathered: dict[str, list[str]] = {}
    for name, origin in table.items():
        found = shaker.resolve(*origin) if name in used else None
        if found is not None and found[1] in shaker.kept.get(found[0], ()):
            gathered.setdefault(names[found[0]], []).append(found[1] if name == found[1] else f"{found[1]} as {name}")
    return [f"from .{module} import {', '.join(sorted(imported))}" for module, imported in sorted(gathered.items())]


def future(source: Module) -> list[str]:
    """The line that makes annotations lazy, where a module has it."""
    line = "from __future__ import annotations"
    return [line, ""] if line in source.source else []


def join_statements(source: Module, statements: list[ast.stmt]) -> str:
    """Write statements one after another, spaced as in the library."""
    text = ""
    for statement in statements:
        is_doc = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_block = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        text += "\n" if is_doc else "\n\n\n" if is_block else "\n\n"
        text += source.text(statement)
    return text.lstrip("\n")


def rewrite_inner_imports(source: Module, body: str, names: dict[str, str]) -> str:
    """Rewrite imports inside of functions for the flat folder."""

    def flat(found: re.Match[str]) -> str:
        node = ast.parse(found[0].strip()).body[0]
        assert isinstance(node, ast.ImportFrom)
        return f"{found[1]}from .{names.get(source.absolute(node), source.absolute(node))} import {found[3]}"

    return re.sub(r"^( +)from (zoo[.\w]*|\.[.\w]*) import (.+)$", flat, body, flags=re.MULTILINE)


Definition = tuple[str, str]
"""A module's name and the name of something defined in it."""

TYPE_CHECKING = "TYPE_CHECKING"


@dataclass
class Module:
    """The source of a module, statement by statement.

    Args:
        own: Full names of the packages with modules to include.
    """

    name: str
    is_package: bool
    source: str
    own: tuple[str, ...]
    imports: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    for_types: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    foreign: list[tuple[ast.Import | ast.ImportFrom, bool]] = field(default_factory=list, init=False)
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict, init=False)
    effects: list[ast.Expr] = field(default_factory=list, init=False)
    everything_of: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)
        self._read(self.tree.body, for_types=False)

    @cached_property
    def lines(self) -> list[str]:
        """The source's lines."""
        return self.source.splitlines()

    @cached_property
    def doc(self) -> str:
        """The module's docstring."""
        return ast.get_docstring(self.tree) or ""

    def _read(self, body: list[ast.stmt], *, for_types: bool) -> None:
        last: str | None = None
        for statement in body:
            names = defined(statement)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._read_import(statement, for_types)
            elif isinstance(statement, ast.If):
                inner = [name for each in (*statement.body, *statement.orelse) for name in defined(each)]
                for name in inner:
                    self.definitions[name] = [statement]
                if not inner and TYPE_CHECKING in names_in(statement.test):
                    self._read(statement.body, for_types=True)
            elif isinstance(statement, ast.Try):  # to import what need not be installed
                for each in statement.body:
                    if isinstance(each, ast.Import):
                        self.definitions |= {alias.asname or alias.name: [statement] for alias in each.names}
            elif names:
                for name in names:
                    self.definitions.setdefault(name, []).append(statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                if last is not None:
                    self.definitions[last].append(statement)
            elif isinstance(statement, ast.Expr):
                self.effects.append(statement)
            last = names[0] if names else None

    def _read_import(self, statement: ast.Import | ast.ImportFrom, for_types: bool) -> None:
        if isinstance(statement, ast.ImportFrom):
            source = self.absolute(statement)
            if source.partition(".")[0] in self.own:
                table = self.for_types if for_types else self.imports
                table.update({alias.asname or alias.name: (source, alias.name) for alias in statement.names})
                self.everything_of += [source for alias in statement.names if alias.name == "*"]
                return
            if source == "__future__":
                return
        self.foreign.append((statement, for_types))

    def absolute(self, statement: ast.ImportFrom) -> str:
        """The full name of the module that a statement imports from."""
        if not statement.level:
            return statement.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - statement.level + self.is_package]
        return ".".join([*parts, statement.module] if statement.module else parts)

    def text(self, statement: ast.stmt) -> str:
        """The source of a statement, with its decorators and the comments right above."""
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        while first and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first : statement.end_lineno])


parsed = cache(Module)
"""Parses a module once for all models that include its code; again where its text has changed."""


def defined(statement: ast.stmt) -> list[str]:
    """Names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    single = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in single if isinstance(target, ast.Name)]


@cache
def names_in(statement: ast.AST) -> frozenset[str]:
    """Names that a statement mentions."""
    return frozenset(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))


class Shaker:
    """Follows names from definition to definition.

    Args:
        own: Packages with modules to include.
        replaced: Modules that others replace: imports from them are not followed.
    """

    def __init__(self, own: Iterable[str], replaced: Iterable[str]) -> None:
        self.own = tuple(own)
        self.replaced = tuple(replaced)
        self.modules: dict[str, Module] = {}
        self.kept: dict[str, set[str]] = {}
        self.kept_effects: dict[str, list[ast.Expr]] = {}

    def module(self, name: str) -> Module:
        """Read a module once."""
        if name not in self.modules:
            module = importlib.import_module(name)
            self.modules[name] = parsed(name, hasattr(module, "__path__"), inspect.getsource(module), self.own)
        return self.modules[name]

    def resolve(self, module: str, name: str) -> Definition | None:
        """Find where something is defined that a module imports."""
        if module in self.replaced:
            return module, name
        found = self.module(module)
        if name in found.definitions:
            return module, name
        if name in found.imports:
            return self.resolve(*found.imports[name])
        return next(filter(None, (self.resolve(source, name) for source in found.everything_of)), None)

    def keep(self, module: str, name: str) -> None:
        """Keep a definition and everything that it needs."""
        pending = [(module, name)]
        while pending:
            where, what = pending.pop()
            if where in self.replaced:
                self.kept.setdefault(where, set()).add(what)
                continue
            if what in self.kept.setdefault(where, set()):
                continue
            self.kept[where].add(what)
            source = self.module(where)
            mentioned = set().union(*(names_in(statement) for statement in source.definitions[what]))
            for effect in self.effects_on(where, what):
                mentioned |= names_in(effect)
            for mention in mentioned:
                found = self.resolve(where, mention) if mention in {*source.definitions, *source.imports} else None
                if found is not None:
                    pending.append(found)
            pending += self.pending_effects(where, what)

    def effects_on(self, module: str, name: str) -> list[ast.Expr]:
        """Statements that fill a definition in its own module: `NAME.update(...)`, but not registrations."""
        found = [effect for effect in self.module(module).effects if receiver(effect) == (name, "update")]
        self.kept_effects.setdefault(module, []).extend(found)
        return found

    def pending_effects(self, module: str, name: str) -> list[Definition]:
        """Statements of other modules that fill a definition."""
        needed: list[Definition] = []
        for other in list(self.modules.values()):
            if other.name == module or other.name in self.replaced:
                continue
            for effect in other.effects:
                target, method = receiver(effect)
                if method != "update" or effect in self.kept_effects.get(other.name, []):
                    continue
                if target in other.imports and self.resolve(*other.imports[target]) == (module, name):
                    self.kept_effects.setdefault(other.name, []).append(effect)
                    mentioned = names_in(effect) & {*other.definitions, *other.imports}
                    needed += [found for found in (self.resolve(other.name, each) for each in mentioned) if found]
        return needed


def receiver(effect: ast.Expr) -> tuple[str, str]:
    """On what, and by which method, a statement has its effect."""
    call = effect.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.value.id, call.func.attr
    return "", ""
