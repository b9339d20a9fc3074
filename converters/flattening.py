"""Writes what a [`zoo.converters.tree_shaking.Shaker`][] keeps as modules of a flat folder."""

from __future__ import annotations

import ast
import re

from .tree_shaking import TYPE_CHECKING, Module, Shaker


def write_module(shaker: Shaker, module: str, names: dict[str, str]) -> str:
    """Write what is kept of a module.

    Args:
        shaker: Knows what.
        module: The module's full name.
        names: Short names of all modules.
    """
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
