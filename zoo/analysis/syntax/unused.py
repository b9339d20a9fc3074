"""Removal of what nothing reads: assignments, counters of loops, members of classes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import libcst as cst
from libcst import matchers as m

from .folding import does_nothing
from .reading import code
from .walking import Visitor, changed


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
        kept = [one for one in updated_node.body if not does_nothing(one)]
        return changed(updated_node, body=kept)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        """Count no turns where nothing reads their number."""
        counts = m.matches(updated_node, m.For(target=m.Tuple(), iter=m.Call(m.Name("enumerate"))))
        if counts and code(updated_node.target.elements[0].value) in self.variables:  # type: ignore[attr-defined]
            target = updated_node.target.elements[1].value  # type: ignore[attr-defined]
            return updated_node.with_changes(target=target, iter=updated_node.iter.args[0].value)  # type: ignore[attr-defined]
        return updated_node
