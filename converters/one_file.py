"""Writes kept definitions of many modules as one: imports first, every definition after those that it needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import libcst as cst

from zoo.analysis.syntax.layout import compacted, with_full_lines
from zoo.analysis.syntax.modules import TYPE_CHECKING, Module, Place, import_lines
from zoo.analysis.syntax.reading import Import, Names, code, names
from zoo.analysis.syntax.walking import Visitor

from .errors import ExportError
from .tree_shaking import Shaker


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
        """Refuse two definitions of one name."""
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
