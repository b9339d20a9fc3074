"""Finds the definitions of a package that some names need, and writes those of many modules as one file."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import libcst as cst

from zoo.analysis.syntax.layout import compacted, with_full_lines
from zoo.analysis.syntax.modules import TYPE_CHECKING, Module, Place, import_lines
from zoo.analysis.syntax.reading import Import, Names, code, names
from zoo.analysis.syntax.walking import Visitor, changed

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

        def without_dropped(node: Any) -> Any:
            if not isinstance(node, cst.ClassDef):
                return node
            body = [one for one in node.body.body if id(one) not in dropped]
            return changed(node, body=changed(node.body, body=body, footer=()))

        return [*map(without_dropped, self.kept[definition])]


class OneFile:
    """The text of one file; `elsewhere` has the file of every definition that goes into another."""

    def __init__(self, shaker: Shaker, definitions: set[Place], elsewhere: dict[Place, str]) -> None:
        self.shaker, self.definitions, self.elsewhere = shaker, definitions, elsewhere
        self.written: dict[str, Place] = {}
        self.blocks: dict[tuple[str, str], str] = {}  # Written text by module and text there
        self.read: dict[str, set[str]] = defaultdict(set)  # by module, and "" for the tail
        self.imported: dict[str, set[str]] = defaultdict(set)
        self.for_types: dict[str, set[str]] = defaultdict(set)
        self.done = set[Place]()

    def write(self, head: str, order: Sequence[str], tail: str = "") -> str:
        """Write a docstring, modules in reading order, and a tail."""
        for module in order:
            for name in self.shaker.module(module).definitions:
                self.put((module, name))
        self.read[""] = set(names(cst.parse_module(tail)).read)
        for (_, name), file in self.elsewhere.items():
            if name in self.read[""]:
                self.imported[file].add(name)
        body, last, was_block = "", "", True
        for (module, _), text in self.blocks.items():
            is_block = text.startswith(("def ", "class ", "@")) or "\n" in text
            if module != last:
                body += f"\n\n# {module}\n"
            elif is_block or was_block:
                body += "\n"
            body += text + "\n"
            last, was_block = module, is_block
        future = "from __future__ import annotations\n"
        return compacted(f"{head}\n\n{future}\n{self.imports()}{with_full_lines(body)}\n\n{tail}".rstrip()) + "\n"

    def put(self, definition: Place) -> None:
        """Write a definition, after those that it needs when it is read."""
        if definition in self.done or definition not in self.definitions:
            return
        self.done.add(definition)
        module, name = definition
        statements = self.shaker.kept[definition]
        for _, needed in self.shaker.needs(module, {each for one in statements for each in needed_at_once(one)}):
            for one in self.shaker.kept.get(needed, ()):
                if isinstance(one, cst.FunctionDef):  # it may be called right here
                    for _, further in self.shaker.needs(needed[0], names(one).read):
                        self.put(further)
            self.put(needed)
        statements = self.shaker.left(definition)
        text = "\n".join(map(code, statements))
        if (module, text) not in self.blocks:  # one statement may define several names
            adapted = [self.adapted(self.shaker.module(module), one) for one in statements]
            self.blocks[module, text] = "\n".join(map(code, adapted))
        self.claim(name, definition)

    def claim(self, name: str, definition: Place) -> None:
        if (other := self.written.setdefault(name, definition)) != definition:
            raise ExportError(
                f"a bundle is one file, but {' and '.join(sorted((other[0], definition[0])))} both define {name}; "
                "rename one of them"
            )

    def adapted(self, source: Module, statement: Any) -> Any:
        """A statement with the names and imports of this file."""
        read = {*names(statement).read, *names(statement).written}
        for alias, (module, name) in self.shaker.needs(source.name, read):
            if file := self.elsewhere.get((module, name)):
                self.imported[file].add(name if alias == name else f"{name} as {alias}")
            elif alias != name and (module, name) in self.definitions and alias not in self.written:
                self.put((module, name))
                self.claim(alias, (module, name))
                self.blocks[module, f"{alias} = {name}"] = f"{alias} = {name}"
        self.read[source.name] |= read
        for name in read & source.for_types.keys():
            if file := self.elsewhere.get(self.shaker.resolve(*source.for_types[name]) or ("", "")):
                self.for_types[file].add(name)
        return InnerImports(self, source).visit(statement)

    def imports(self) -> str:
        found, types = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        known = set[str]()
        modules = [self.shaker.module(module) for module in sorted({module for module, _ in self.definitions})]
        foreign = [(*each, self.read[one.name] | self.read[""]) for one in modules for each in one.foreign]
        for one, only_types, read in sorted(foreign, key=lambda each: each[1]):
            if one.bound in read and one.bound not in known:
                known.add(one.bound)
                (types if only_types else found)[one.source].add(one.text)
        for file, own in self.for_types.items():
            types[f".{file}"] |= own - self.imported[file]
        of_types = import_lines(types)
        if of_types:
            found["typing"].add(TYPE_CHECKING)
        lines = [*import_lines(found), "", *import_lines({f".{file}": own for file, own in self.imported.items()})]
        if of_types:
            lines += ["", f"if {TYPE_CHECKING}:", *(f"    {line}" for line in of_types)]
        return "\n".join(lines).strip() + "\n"


class InnerImports(Visitor):
    """Import from the other file, or not at all, inside of functions of a module."""

    def __init__(self, file: OneFile, source: Module) -> None:
        self.file, self.source = file, source

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        one = updated_node.body[0]
        places = self.source.own_imports(one) if isinstance(one, Import) else {}
        if not places:
            return updated_node
        found = (self.file.shaker.resolve(*place) for place in places.values())
        files = {self.file.elsewhere[each] for each in found if each in self.file.elsewhere}
        if not files:
            return cst.RemoveFromParent()
        return updated_node.with_changes(body=[one.with_changes(relative=[cst.Dot()], module=cst.Name(files.pop()))])


class NeededAtOnce(Names):
    """Names that a definition reads when it is executed: bases, decorators, defaults, values."""

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef | cst.Lambda) -> bool:
        for one in (node.params, *getattr(node, "decorators", ())):
            self.visit(one)
        return False

    visit_Lambda = visit_FunctionDef


@lru_cache(maxsize=2**14)
def needed_at_once(statement: cst.CSTNode) -> list[str]:
    found = NeededAtOnce()
    found.visit(statement)
    return found.read
