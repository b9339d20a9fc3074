"""Partial evaluation of source: branches that known values decide are taken, and what nothing reads is removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import libcst as cst
from libcst import matchers as m

from .reading import code
from .walking import Visitor, changed, nodes_of

UNKNOWN = object()  # Value of an expression that is known only when the code runs


class BranchFolder(Visitor):
    """Take the branches that known values decide; a subclass knows the values."""

    def value(self, node: cst.BaseExpression) -> Any:
        """The value of an expression, UNKNOWN if it is not decided."""
        raise NotImplementedError

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        decides = isinstance(updated_node.operator, cst.Or)
        left, right = self.value(updated_node.left), self.value(updated_node.right)
        if any(nodes_of(updated_node.left, cst.NamedExpr)):
            return updated_node
        if left is not UNKNOWN:
            chosen = updated_node.left if bool(left) == decides else updated_node.right
        elif right is decides:
            return cst.Name(str(decides))
        elif right is (not decides) and isinstance(updated_node.left, (cst.Comparison, cst.UnaryOperation)):
            chosen = updated_node.left
        else:
            return updated_node
        if chosen.lpar or "\n" not in code(chosen):
            return chosen
        return chosen.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        is_not = isinstance(updated_node.operator, cst.Not)
        value = self.value(updated_node.expression) if is_not else UNKNOWN
        return updated_node if value is UNKNOWN else cst.Name(str(not value))

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        value = self.value(updated_node.test)
        if value is UNKNOWN:
            return updated_node
        chosen = updated_node.body if value else updated_node.orelse
        if isinstance(chosen, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
            return chosen
        return chosen.with_changes(lpar=updated_node.lpar or chosen.lpar, rpar=updated_node.rpar or chosen.rpar)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return changed(updated_node, body=self.decided(updated_node.body))

    def decided(self, statements: Sequence[Any]) -> list[Any]:
        """Statements that are reached, with the branches that are taken in the place of decided ones."""
        kept: list[Any] = []
        for statement in statements:
            kept += self.branch(statement) if isinstance(statement, cst.If) else [statement]
            last = kept[-1].body[-1] if kept and isinstance(kept[-1], cst.SimpleStatementLine) else None
            if isinstance(last, (cst.Return, cst.Raise, cst.Continue)):
                break
        return kept

    def branch(self, node: cst.If) -> list[Any]:
        """The statements of the branch that is taken, or the whole if the test is not decided."""
        value, orelse = self.value(node.test), node.orelse
        if value is UNKNOWN:
            if isinstance(orelse, cst.If):
                rest = self.branch(orelse)
                is_one = len(rest) == 1 and isinstance(rest[0], cst.If)
                orelse = rest[0] if is_one else cst.Else(cst.IndentedBlock(rest)) if rest else None
            return [changed(node, orelse=orelse)]
        taken: list[Any] = []
        if value:
            taken = list(node.body.body)
        elif isinstance(orelse, cst.Else):
            taken = list(orelse.body.body)
        elif orelse is not None:
            taken = self.branch(orelse)
        taken = [one for one in taken if not does_nothing(one)]
        if taken:
            taken[0] = taken[0].with_changes(leading_lines=[*node.leading_lines, *taken[0].leading_lines])
        return taken


def does_nothing(node: cst.CSTNode) -> bool:
    """Whether a statement is `pass`, or a branch or a loop of nothing else."""
    if isinstance(node, (cst.If, cst.For)) and node.orelse is None:
        return all(does_nothing(one) for one in node.body.body)
    return m.matches(node, m.SimpleStatementLine(body=[m.Pass()]))


class Unread(Visitor):
    """Remove assignments of `variables`, and of attributes of `self` not in `attributes` (None to keep all)."""

    def __init__(self, variables: Collection[str], attributes: Collection[str] | None = None) -> None:
        self.variables, self.attributes = variables, attributes

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        assign = updated_node.body[0]
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
            target: Any = assign.targets[0].target
            if isinstance(target, cst.Name) and (target.value in self.variables or code(assign.value) == target.value):
                return cst.RemoveFromParent()
            of_self = m.matches(target, m.Attribute(m.Name("self")))
            if self.attributes is not None and of_self and target.attr.value not in self.attributes:
                return cst.RemoveFromParent()
        return updated_node

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        if isinstance(original_node.target, cst.Name) and original_node.target.value in self.variables:
            return updated_node.with_changes(target=cst.Name("_"))
        return updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return changed(updated_node, body=[one for one in updated_node.body if not does_nothing(one)])

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        """Count no turns where nothing reads their number."""
        target: Any = updated_node.target
        counts = m.matches(updated_node, m.For(target=m.Tuple(), iter=m.Call(m.Name("enumerate"))))
        if counts and code(target.elements[0].value) in self.variables:
            iterated = updated_node.iter.args[0].value  # type: ignore[attr-defined]
            return updated_node.with_changes(target=target.elements[1].value, iter=iterated)
        return updated_node
