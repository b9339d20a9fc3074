"""Names that a tree reads and writes, its calls, imports and assignments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import libcst as cst
from libcst import matchers as m

from .walking import Visitor, children

Import = cst.Import | cst.ImportFrom

EMPTY = cst.Module([])  # Has the indents of code that is written

DOCSTRING = m.SimpleStatementLine(body=[m.Expr(m.SimpleString() | m.ConcatenatedString())])
"""A docstring, of an attribute too."""


@lru_cache(maxsize=16384)  # about those of one model
def code(node: cst.CSTNode) -> str:
    return EMPTY.code_for_node(node).strip()


def is_docstring(node: cst.CSTNode) -> bool:
    return m.matches(node, DOCSTRING)


class Names(Visitor):
    """Names that are read and written below a node, attributes that are read, words in quotes, calls, statements."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.written: list[str] = []
        self.attributes: list[cst.Attribute] = []
        self.strings: list[str] = []
        self.calls: list[cst.Call] = []
        self.assigns: list[cst.Assign] = []
        self.loops: list[cst.For] = []
        self.imports: list[Import] = []

    @cached_property
    def words(self) -> set[str]:
        """Words by which attributes may be read."""
        return {*(one.attr.value for one in self.attributes), *self.strings}

    @cached_property
    def owners(self) -> list[tuple[str, str]]:
        """Attributes that are read, each with the text of its object."""
        return [(code(one.value), one.attr.value) for one in self.attributes]

    def visit_Assign(self, node: cst.Assign) -> None:
        self.assigns.append(node)

    def visit_Call(self, node: cst.Call) -> None:
        self.calls.append(node)

    def visit_Import(self, node: Import) -> bool:
        self.imports.append(node)
        return False

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: cst.Name) -> None:
        self.read.append(node.value)

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        self.strings.append(node.raw_value)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.attributes.append(node)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return self.target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign | cst.For | cst.CompFor) -> bool:
        """Note what is written, and visit the rest."""
        self.target(node.target)
        for child in children(node):
            if child is not node.target:
                self.visit(child)
        return False

    visit_CompFor = visit_AnnAssign

    def visit_For(self, node: cst.For) -> bool:
        self.loops.append(node)
        return self.visit_AnnAssign(node)

    def target(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Name):
            self.written.append(node.value)
        elif isinstance(node, cst.Tuple):
            for element in node.elements:
                self.target(element.value)
        elif isinstance(node, cst.Attribute):
            if not m.matches(node.value, m.Name("self")):
                self.visit(node.value)
        else:
            self.visit(node)
        return False


@lru_cache(maxsize=2**15)  # about those of a few models
def names(node: cst.CSTNode) -> Names:
    found = Names()
    found.visit(node)
    return found


def assigned(body: cst.BaseSuite) -> dict[str, cst.Assign]:
    """Assignments to variables, by the variable."""
    return {
        code(one.targets[0].target): one for one in names(body).assigns if isinstance(one.targets[0].target, cst.Name)
    }


class Substitution(Visitor):
    """Put expressions in the place of names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.values.get(updated_node.value, updated_node)
