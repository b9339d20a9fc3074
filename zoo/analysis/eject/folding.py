"""Partial evaluation of plain code: branches on known values are decided, dead statements are dropped."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import libcst as cst

from ..syntax.folding import UNKNOWN, BranchFolder
from ..syntax.reading import code

PRESENT = object()  # Of a value that is known only when a forward runs, but is not None

BUILTINS = {one.__name__: one for one in (len, any, all, set, int, max, min, isinstance)}


def literal(value: Any) -> cst.BaseExpression:
    """A word, a truth value or None as an expression."""
    return cst.parse_expression(f'"{value}"' if isinstance(value, str) else repr(value))


def evaluate(node: cst.BaseExpression, values: Mapping[str, Any]) -> Any:
    """The value of an expression, UNKNOWN if it contains a name of unknown value, PRESENT if it is not None."""
    if isinstance(node, cst.Name) and node.value in values:
        return values[node.value]
    if isinstance(node, cst.IfExp) and evaluate(node.test, values) in (UNKNOWN, PRESENT):
        filled = code(node.test) == f"{code(node.orelse)} is None"  # `a if b is None else b` is None if a is
        branches = [evaluate(one, values) for one in ((node.body,) if filled else (node.body, node.orelse))]
        return UNKNOWN if any(one is UNKNOWN or one is None for one in branches) else PRESENT
    known = {name: value for name, value in values.items() if value is not UNKNOWN and value is not PRESENT}
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        (target,) = node.comparisons
        is_none = isinstance(target.comparator, cst.Name) and target.comparator.value == "None"
        if is_none and evaluate(node.left, values) is PRESENT:
            return isinstance(target.operator, cst.IsNot)
    with suppress(NameError, AttributeError, TypeError), warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # about subscripts of None, in branches that are not taken
        return eval(f"({code(node)})", {"__builtins__": BUILTINS}, dict(known))  # the zoo's own source
    never_none = (cst.Call, cst.BinaryOperation, cst.Comparison, cst.Subscript, cst.Dict, cst.List, cst.Integer)
    return PRESENT if isinstance(node, never_none) else UNKNOWN


def is_literal(value: Any) -> bool:
    """Whether a known value is written out: words and switches are, numbers stay names."""
    return value is None or isinstance(value, (bool, str))


class Folder(BranchFolder):
    """Decide what known values, by name, decide; `config` and `self.config` are settings."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def value(self, node: cst.BaseExpression) -> Any:
        found = evaluate(node, self.values)
        return UNKNOWN if found is PRESENT else found

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self.values.get(updated_node.value, UNKNOWN)
        return literal(value) if is_literal(value) else updated_node

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return False

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if code(original_node.value) not in ("config", "self.config", "model.config", "self"):
            return updated_node
        value = evaluate(original_node, self.values)
        return literal(value) if is_literal(value) else updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        value = evaluate(original_node, self.values)
        return literal(value) if isinstance(value, bool) else updated_node


def simple(value: Any) -> Any:
    """A value that is written out, or whether it is there at all."""
    return value if value is UNKNOWN or value is PRESENT or is_literal(value) else PRESENT


def joined(values: list[Any]) -> Any:
    """Common value of a parameter; `PRESENT` or `UNKNOWN` if its values differ."""
    first = values[0]
    if all(value is first or (type(value) is type(first) and value == first) for value in values):
        return first
    return UNKNOWN if any(value is UNKNOWN or value is None for value in values) else PRESENT
