"""Functions and their calls: variables, and methods in the place of their only call."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from ..partial_evaluation import code, names
from ..walking import Visitor
from .program import methods, parameters


def variables_of(function: cst.FunctionDef) -> list[str]:
    return [*parameters(function), *names(function.body).written]


def sources(body: cst.CSTNode, name: str, above: tuple[str, ...] = ()) -> set[str]:
    """Attributes that a variable of a function is taken from."""
    found: set[str] = set()
    given = [(one.targets[0].target, one.value) for one in names(body).assigns]
    given += [(one.target, one.iter) for one in names(body).loops]
    for target, value in given:
        if name in names(target).read and name not in above:
            inner = names(value)
            found.update(inner.attributes)
            for other in inner.read:
                found |= sources(body, other, (*above, name))
    return found


def with_methods_inlined(node: cst.CSTNode) -> cst.CSTNode:
    """A class with the statements of a method in the place of its only call, with arguments called as parameters."""
    if not isinstance(node, cst.ClassDef):
        return node
    for name, method in methods(node).items():
        called = [call for call in names(node).calls if code(call.func) == f"self.{name}"]
        statements = [one for one in method.body.body if not is_docstring(one)]
        last: Any = statements[-1].body[0] if isinstance(statements[-1], cst.SimpleStatementLine) else None
        once = len(called) == 1 and isinstance(last, cst.Return) and name != "forward"
        if not once or [code(arg.value) for arg in called[0].args] != list(parameters(method)):
            continue

        class Splicer(Visitor):
            def leave_SimpleStatementLine(
                self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
            ) -> Any:
                assign: Any = updated_node.body[0]
                is_read = isinstance(assign, (cst.Assign, cst.Return)) and assign.value is not None
                if is_read and code(assign.value) == code(called[0]):  # noqa: B023
                    result = statements[-1].with_changes(body=[assign.with_changes(value=last.value)])  # noqa: B023
                    return cst.FlattenSentinel([*statements[:-1], result])  # noqa: B023
                return updated_node

        body = [one for one in node.body.body if one is not method]
        changed = Splicer().visit(node.with_changes(body=node.body.with_changes(body=body)))
        if f"self.{name}(" not in code(changed):  # else it is called inside of another expression
            return changed
    return node


def is_docstring(node: cst.CSTNode) -> bool:
    return m.matches(node, m.SimpleStatementLine(body=[m.Expr(m.SimpleString())]))
