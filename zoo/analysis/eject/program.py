"""The plain code as definitions by name, and what each call in it may call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
from libcst import matchers as m

from ..syntax.modules import Imported, Module
from ..syntax.reading import Substitution, code, names

PLAIN = Path(__file__).parents[1] / "plain"


class Plain(NamedTuple):
    """Plain code."""

    definitions: dict[str, cst.CSTNode]  # Classes, functions and names of types, by name
    imports: dict[str, Imported]  # From other packages, by name


@cache
def read_plain() -> Plain:
    """The plain code of all parts, without the placeholders of a file's own settings."""
    files = [read_file(file) for file in sorted(PLAIN.glob("*.py")) if file.name != "config.py"]
    definitions = {name: node for file in files for name, node in file.definitions.items()}
    return Plain(flattened(definitions), {name: one for file in files for name, one in file.imports.items()})


def read_file(file: Path) -> Plain:
    module = Module(f"{__package__}.{file.stem}", False, file.read_text(encoding="utf-8"), ("zoo",))
    definitions = {name: statement for name, (statement, *_) in module.definitions.items()}
    return Plain(definitions, {one.bound: one for one, _ in module.foreign})


def flattened(definitions: dict[str, cst.CSTNode]) -> dict[str, cst.CSTNode]:
    """Classes without bases among the plain ones: members of a base are written into each class that inherits them."""

    def flatten(name: str) -> Any:
        node = definitions[name]
        base = code(node.bases[0].value) if isinstance(node, cst.ClassDef) and node.bases else ""
        return merged(node, flatten(base)) if base in definitions else node  # type: ignore[arg-type]

    return {name: flatten(name) for name in definitions}


def methods(node: cst.CSTNode) -> dict[str, cst.FunctionDef]:
    """Methods of a class by name, a function by its own."""
    if isinstance(node, cst.FunctionDef):
        return {node.name.value: node}
    if not isinstance(node, cst.ClassDef):
        return {}
    return {one.name.value: one for one in node.body.body if isinstance(one, cst.FunctionDef)}


def parameters(node: cst.FunctionDef) -> dict[str, cst.BaseExpression | None]:
    """Parameters and their defaults, without `self`."""
    return {one.name.value: one.default for one in node.params.params if one.name.value != "self"}


def bound(function: cst.FunctionDef, call: cst.Call) -> dict[str, cst.Arg]:
    """Arguments of a call by the names of parameters."""
    order = list(parameters(function))
    given = dict(zip(order, (arg for arg in call.args if arg.keyword is None), strict=False))
    return given | {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}


def values_of(function: cst.FunctionDef, call: cst.Call) -> dict[str, Any]:
    """Values of parameters in a call: its arguments, else defaults."""
    defaults = {name: value for name, value in parameters(function).items() if value is not None}
    return defaults | {name: arg.value for name, arg in bound(function, call).items()}


def merged(node: cst.ClassDef, base: cst.ClassDef) -> cst.ClassDef:
    """A class with the members of its base, and the base's constructor in the place of its call."""
    own, inherited = methods(node), methods(base)
    if "__init__" in own and "__init__" in inherited:
        own["__init__"] = with_base_constructor(own["__init__"], inherited["__init__"])
    names = ["__init__", *(name for name in inherited if name != "__init__"), *own]
    members = [own.get(name) or inherited[name] for name in dict.fromkeys(names) if name in own or name in inherited]
    docstring = [one for one in node.body.body if not isinstance(one, cst.FunctionDef)]
    members[0] = members[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return node.with_changes(bases=base.bases, body=node.body.with_changes(body=[*docstring, *members]))


def with_base_constructor(own: cst.FunctionDef, base: cst.FunctionDef) -> cst.FunctionDef:
    """A constructor that does what its base's does, where it called that."""
    constructor = m.Expr(m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__"))))
    body: list[Any] = []
    for statement in own.body.body:
        if m.matches(statement, m.SimpleStatementLine([constructor])):
            call: Any = statement.body[0].value  # type: ignore[union-attr]
            body += Substitution(values_of(base, call)).visit(base.body).body
        else:
            body.append(statement)
    return own.with_changes(body=own.body.with_changes(body=body))


def functions(definitions: dict[str, cst.CSTNode]) -> Iterator[tuple[str, str, cst.FunctionDef]]:
    """Every function and method with the name of its class, or its own."""
    for name, node in definitions.items():
        for method_name, method in methods(node).items():
            yield name, method_name, method


def sources(body: cst.CSTNode, name: str, above: tuple[str, ...] = ()) -> set[str]:
    """Attributes that a variable of a function is taken from."""
    found: set[str] = set()
    given = [(one.targets[0].target, one.value) for one in names(body).assigns]
    given += [(one.target, one.iter) for one in names(body).loops]
    for target, value in given:
        if name in names(target).read and name not in above:
            inner = names(value)
            found.update(one.attr.value for one in inner.attributes)
            for other in inner.read:
                found |= sources(body, other, (*above, name))
    return found
