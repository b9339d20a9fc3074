"""The plain code as definitions by name, and what each call in it may call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers as m

from ..partial_evaluation import code

PLAIN = Path(__file__).parents[1] / "plain"


@cache
def read_plain() -> dict[str, cst.CSTNode]:
    """Top-level definitions of the plain code by name: classes, functions and names of types."""
    found: dict[str, cst.CSTNode] = {}
    for file in sorted(PLAIN.glob("*.py")):
        if file.name != "config.py":
            found |= definitions_of(file.read_text(encoding="utf-8"))
    return flattened(found)


def definitions_of(source: str) -> dict[str, cst.CSTNode]:
    """Top-level definitions of a module by name."""
    found: dict[str, cst.CSTNode] = {}
    for statement in cst.parse_module(source).body:
        if isinstance(statement, (cst.ClassDef, cst.FunctionDef)):
            found[statement.name.value] = statement
        elif m.matches(statement, m.SimpleStatementLine(body=[m.Assign()])):
            found[code(statement).partition(" ")[0]] = statement
    return found


def flattened(definitions: dict[str, cst.CSTNode]) -> dict[str, cst.CSTNode]:
    """Classes without bases among the plain ones: members of a base are written into each class that inherits them."""
    done: dict[str, cst.CSTNode] = {}

    def flatten(name: str) -> cst.CSTNode:
        node = definitions[name]
        if name not in done:
            done[name] = node
            if isinstance(node, cst.ClassDef) and node.bases and code(node.bases[0].value) in definitions:
                base = flatten(code(node.bases[0].value))
                assert isinstance(base, cst.ClassDef)
                done[name] = merged(node, base)
        return done[name]

    return {name: flatten(name) for name in definitions}


def methods(node: cst.CSTNode) -> dict[str, cst.FunctionDef]:
    """Methods of a class by name, a function by its own."""
    if isinstance(node, cst.FunctionDef):
        return {node.name.value: node}
    if not isinstance(node, cst.ClassDef):
        return {}
    return {one.name.value: one for one in node.body.body if isinstance(one, cst.FunctionDef)}


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
    body: list[Any] = []
    for statement in own.body.body:
        call = m.extract(
            statement,
            m.SimpleStatementLine(
                body=[
                    m.Expr(m.SaveMatchedNode(m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__"))), "call"))
                ]
            ),
        )
        found: Any = None if call is None else call["call"]
        if found is None:
            body.append(statement)
            continue
        params = [param.name.value for param in base.params.params[1:]]
        given = dict(zip(params, (arg for arg in found.args if arg.keyword is None), strict=False))
        given |= {arg.keyword.value: arg for arg in found.args if arg.keyword is not None}
        values = {param.name.value: param.default for param in base.params.params[1:] if param.default is not None}
        values |= {name: arg.value for name, arg in given.items()}
        inherited = base.body.visit(Substitution(values))
        assert isinstance(inherited, cst.IndentedBlock)
        body += inherited.body
    return own.with_changes(body=own.body.with_changes(body=body))


class Substitution(cst.CSTTransformer):
    """Put expressions in the place of names."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__()
        self.values = values

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.values.get(updated_node.value, updated_node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        return updated_node.with_changes(name=original_node.name)


class Names(cst.CSTVisitor):
    """Names that are read and written below a node, and attributes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.written: list[str] = []
        self.attributes: list[str] = []
        self.owners: list[tuple[str, str]] = []
        self.calls: list[cst.Call] = []
        self.assigns: list[cst.Assign] = []
        self.loops: list[cst.For] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        self.assigns.append(node)

    def visit_Call(self, node: cst.Call) -> None:
        self.calls.append(node)

    def visit_Name(self, node: cst.Name) -> None:
        self.read.append(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        self.attributes.append(node.attr.value)
        self.owners.append((code(node.value), node.attr.value))
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Param(self, node: cst.Param) -> bool:
        for child in (node.annotation, node.default):
            if child is not None:
                child.visit(self)
        return False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return self.target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> bool:
        self.target(node.target)
        node.annotation.visit(self)
        if node.value is not None:
            node.value.visit(self)
        return False

    def visit_For(self, node: cst.For) -> bool:
        self.loops.append(node)
        self.target(node.target)
        for child in (node.iter, node.body):
            child.visit(self)
        return False

    def visit_CompFor(self, node: cst.CompFor) -> bool:
        self.target(node.target)
        for child in (node.iter, *node.ifs, *(() if node.inner_for_in is None else (node.inner_for_in,))):
            child.visit(self)
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        for child in (*node.decorators, node.params, node.body):
            child.visit(self)
        if node.returns is not None:
            node.returns.visit(self)
        return False

    def target(self, node: cst.BaseExpression) -> bool:
        """Note what an assignment writes."""
        if isinstance(node, cst.Name):
            self.written.append(node.value)
        elif isinstance(node, cst.Tuple):
            for element in node.elements:
                self.target(element.value)
        elif isinstance(node, cst.Attribute):
            if not m.matches(node.value, m.Name("self")):
                node.value.visit(self)
        else:
            node.visit(self)
        return False


@lru_cache(maxsize=4096)  # about those of one model
def names(node: cst.CSTNode) -> Names:
    """Names below a node."""
    found = Names()
    node.visit(found)
    return found


def functions(definitions: dict[str, cst.CSTNode]) -> Iterator[tuple[str, str, cst.FunctionDef]]:
    """Every function and method with the name of its class, or its own."""
    for name, node in definitions.items():
        for method_name, method in methods(node).items():
            yield name, method_name, method
