"""Writes kept definitions of many modules as one: imports first, every definition after those that it needs."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from zoo.analysis.compacting import compacted

from .errors import ExportError
from .tree_shaking import TYPE_CHECKING, Definition, Import, Module, Shaker, imports_in, read_names, statement_of

WIDTH = 120  # Longest line


class OneFile:
    """The text of one file; `elsewhere` has the file of every definition that goes into another."""

    def __init__(self, shaker: Shaker, definitions: set[Definition], elsewhere: dict[Definition, str]) -> None:
        self.shaker, self.definitions, self.elsewhere = shaker, definitions, elsewhere
        self.written: dict[str, Definition] = {}
        self.blocks: list[tuple[str, str]] = []
        self.read: dict[str, set[str]] = defaultdict(set)  # by module, and "" for the tail
        self.imported: dict[str, set[str]] = {}
        self.for_types: dict[str, set[str]] = {}
        self.done = set[Definition]()
        self.blocks_done = set[tuple[str, str]]()

    def write(self, head: str, order: Sequence[str], tail: str = "") -> str:
        """Write a docstring, modules in reading order, and a tail."""
        rank = {module: number for number, module in enumerate(order)}
        for module, name in sorted(self.definitions, key=lambda each: (rank[each[0]], self.line_of(each))):
            self.put((module, name))
        of_tail = read_names(ast.parse(tail))[0]
        self.read[""] |= of_tail
        for (_, name), file in self.elsewhere.items():
            if name in of_tail:
                self.imported.setdefault(file, set()).add(name)
        body, last, was_block = "", "", True
        for module, text in self.blocks:
            is_block = text.startswith(("def ", "class ", "@")) or "\n" in text
            if module != last:
                body += f"\n\n# {module}\n"
            elif is_block or was_block:
                body += "\n"
            body += text + "\n"
            last, was_block = module, is_block
        future = "from __future__ import annotations\n"
        return compacted(f"{head}\n\n{future}\n{self.imports()}{filled(body)}\n\n{tail}".rstrip()) + "\n"

    def line_of(self, definition: Definition) -> int:
        return self.shaker.module(definition[0]).definitions[definition[1]][0].lineno

    def put(self, definition: Definition) -> None:
        """Write a definition, after those that it needs when it is read."""
        if definition in self.done or definition not in self.definitions:
            return
        self.done.add(definition)
        module, name = definition
        trees = [piece.tree for piece in self.shaker.kept[definition]]
        for _, needed in self.shaker.needs(module, {each for tree in trees for each in needed_at_once(tree)}):
            for piece in self.shaker.kept.get(needed, ()):
                if isinstance(piece.tree, ast.FunctionDef):  # it may be called right here
                    for _, further in self.shaker.needs(needed[0], read_names(piece.tree)[0]):
                        self.put(further)
            self.put(needed)
        text = self.shaker.text(definition)
        if (module, text) not in self.blocks_done:  # one statement may define several names
            self.blocks_done.add((module, text))
            adapted = self.adapted(self.shaker.module(module), text)
            self.blocks.append((module, adapted))
        self.claim(name, definition)

    def claim(self, name: str, definition: Definition) -> None:
        """Refuse two definitions of one name."""
        if (other := self.written.setdefault(name, definition)) != definition:
            raise ExportError(
                f"a bundle is one file, but {' and '.join(sorted((other[0], definition[0])))} both define {name}; "
                "rename one of them"
            )

    def adapted(self, source: Module, text: str) -> str:
        """Text of a statement with the names of this file."""
        tree, lines = statement_of(text), text.split("\n")
        for alias, (module, name) in self.shaker.needs(source.name, read_names(tree)[0]):
            if file := self.elsewhere.get((module, name)):
                self.imported.setdefault(file, set()).add(name if alias == name else f"{name} as {alias}")
            elif alias != name and (module, name) in self.definitions and alias not in self.written:
                self.put((module, name))
                self.claim(alias, (module, name))
                self.blocks.append((module, f"{alias} = {name}"))
        for inner in sorted(imports_in(tree), key=lambda node: node.lineno, reverse=True):
            if source.own_imports(inner):
                new, last = self.inner_import(source, inner), inner.end_lineno or inner.lineno
                comment = lines[last - 1][inner.end_col_offset :]
                lines[inner.lineno - 1 : last] = [f"{' ' * inner.col_offset}{new}{comment}"] if new else []
        self.read[source.name] |= read_names(tree)[0]
        for name in read_names(tree)[0] & source.for_types.keys():
            found = self.shaker.resolve(*source.for_types[name])
            if found in self.elsewhere:
                self.for_types.setdefault(self.elsewhere[found], set()).add(name)
        return "\n".join(lines)

    def inner_import(self, source: Module, node: Import) -> str:
        """An import inside of a function: of the other file, or none."""
        found = [self.shaker.resolve(*pair) for pair in source.own_imports(node).values()]
        files = {self.elsewhere[each] for each in found if each in self.elsewhere}
        names = ", ".join(alias.name for alias in node.names)
        return f"from .{files.pop()} import {names}" if files else ""

    def imports(self) -> str:
        plain, named, types = set[str](), dict[str, set[str]](), dict[str, set[str]]()
        known = set[str]()
        modules = [self.shaker.module(module) for module in sorted({module for module, _ in self.definitions})]
        foreign = [(self.read[one.name] | self.read[""], *each) for one in modules for each in one.foreign]
        for read, statement, only_types in sorted(foreign, key=lambda each: each[2]):
            for alias in statement.names:
                name = (alias.asname or alias.name).partition(".")[0]
                if name not in read or name in known:
                    continue
                known.add(name)
                text = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                if isinstance(statement, ast.Import):
                    plain.add(f"import {text}")
                else:
                    (types if only_types else named).setdefault(statement.module or "", set()).add(text)
        left = {file: names - self.imported.get(file, set()) for file, names in self.for_types.items()}
        types |= {f".{file}": names for file, names in left.items() if names}
        if types:
            named.setdefault("typing", set()).add(TYPE_CHECKING)
        lines = [*sorted(plain), *from_lines(named), ""]
        lines += from_lines({f".{file}": names for file, names in self.imported.items()})
        if types:
            lines += ["", f"if {TYPE_CHECKING}:", *(f"    {line}" for line in from_lines(types))]
        return "\n".join(lines).strip() + "\n"


def from_lines(named: dict[str, set[str]]) -> list[str]:
    lines = []
    for source, names in sorted(named.items()):
        if not names:
            continue
        line = f"from {source} import {', '.join(sorted(names))}"
        if len(line) > WIDTH:
            indent = " " * 4
            listed = ", ".join(sorted(names)) + ","
            wrapped = textwrap.wrap(listed, WIDTH, initial_indent=indent, subsequent_indent=indent)
            line = "\n".join([f"from {source} import (", *wrapped, ")"])
        lines.append(line)
    return lines


def filled(text: str) -> str:
    """Text with arguments that have a line each in full lines."""

    def fill(found: re.Match[str]) -> str:
        indent, opened, arguments, closed = found.groups()
        units = [line.strip() for line in arguments.strip().split("\n")]
        single = f"{indent}{opened}{' '.join(units).rstrip(',')}{closed}"
        if len(single) <= WIDTH:
            return single
        lines = [f"{indent}   "]
        for unit in units:
            if len(lines[-1]) + 1 + len(unit) > WIDTH:
                lines.append(f"{indent}   ")
            lines[-1] += f" {unit}"
        return "\n".join([f"{indent}{opened}", *lines, f"{indent}{closed}"])

    pattern = r"^( *)([^\n#]*[({[])\n((?:\1    [^\s#)][^\n#]*,\n){3,})\1([)}\]][^\n]*)$"
    return re.sub(pattern, fill, text, flags=re.MULTILINE)


@lru_cache(maxsize=2**14)
def needed_at_once(statement: ast.stmt) -> set[str]:
    """Names that a definition reads when it is executed: bases, decorators, defaults, values."""
    names = set[str]()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            waiting += [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])]
        elif isinstance(node, ast.AnnAssign):
            waiting += [part for part in (node.target, node.value) if part is not None]
        else:
            waiting += ast.iter_child_nodes(node)
    return names
