"""Partial evaluation of plain code: branches on known values are decided, dead statements are dropped."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import libcst as cst

UNKNOWN, PRESENT = object(), object()
"""What is known of a value before a forward runs: nothing; or that it is not None."""

BUILTINS = {
    "len": len,
    "any": any,
    "all": all,
    "set": set,
    "int": int,
    "max": max,
    "min": min,
    "isinstance": isinstance,
}


def code(node: cst.CSTNode) -> str:
    """Source of a node."""
    return cst.Module([]).code_for_node(node).strip()


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


class Folder(cst.CSTTransformer):
    """Decide what known values decide.

    Args:
        values: Known values by name; `config` and `self.config` are settings.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.values = values

    def visit_FunctionDef_params(self, node: cst.FunctionDef) -> None:
        return None

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self.values.get(updated_node.value, UNKNOWN)
        return literal(value) if is_literal(value) else updated_node

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        return updated_node.with_changes(name=original_node.name)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        return original_node

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        return original_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        updated_node = updated_node.with_changes(attr=original_node.attr)
        if code(original_node.value) not in ("config", "self.config", "model.config", "self"):
            return updated_node
        value = evaluate(original_node, self.values)
        return literal(value) if is_literal(value) else updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        value = evaluate(original_node, self.values)
        return literal(value) if isinstance(value, bool) else updated_node

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        value = evaluate(original_node, self.values)
        return literal(value) if isinstance(value, bool) else updated_node

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        decides = isinstance(updated_node.operator, cst.Or)
        for side, other in ((updated_node.left, updated_node.right), (updated_node.right, updated_node.left)):
            value = evaluate(side, self.values)
            if value is not UNKNOWN and value is not PRESENT:
                chosen = side if bool(value) == decides else other
                if "\n" not in code(chosen) or chosen.lpar:
                    return chosen
                return chosen.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)
        return updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        value = evaluate(updated_node.test, self.values)
        if value is UNKNOWN or value is PRESENT:
            return updated_node
        chosen = updated_node.body if value else updated_node.orelse
        if isinstance(chosen, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
            return chosen
        return chosen.with_changes(lpar=updated_node.lpar or chosen.lpar, rpar=updated_node.rpar or chosen.rpar)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(body=self.decided(updated_node.body))

    def decided(self, statements: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Statements with the branches that are taken in the place of decided ones."""
        kept: list[cst.BaseStatement] = []
        for statement in statements:
            kept += self.branch(statement) if isinstance(statement, cst.If) else [statement]
            if kept and always_leaves(kept[-1]):
                break
        return kept

    def branch(self, node: cst.If) -> list[cst.BaseStatement]:
        """The statements of the branch that is taken, or the whole if the test is not decided."""
        value = evaluate(node.test, self.values)
        if value is UNKNOWN or value is PRESENT:
            if isinstance(node.orelse, cst.If):
                rest = self.branch(node.orelse)
                if len(rest) == 1 and isinstance(rest[0], cst.If):
                    orelse: Any = rest[0]
                else:
                    orelse = cst.Else(cst.IndentedBlock(rest)) if rest else None
                node = node.with_changes(orelse=orelse)
            return [node]
        taken: list[Any]
        if value:
            taken = list(node.body.body)
        elif isinstance(node.orelse, cst.Else):
            taken = list(node.orelse.body.body)
        else:
            taken = self.branch(node.orelse) if node.orelse is not None else []
        taken = self.decided(taken)
        if taken and hasattr(taken[0], "leading_lines"):
            taken[0] = taken[0].with_changes(leading_lines=[*node.leading_lines, *taken[0].leading_lines])
        return taken


def always_leaves(statement: cst.BaseStatement) -> bool:
    """Whether what follows a statement is never reached."""
    if isinstance(statement, cst.SimpleStatementLine):
        return isinstance(statement.body[-1], (cst.Return, cst.Raise, cst.Continue))
    return False
