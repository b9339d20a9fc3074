"""Partial evaluation of plain code: branches on known values are decided, and what nothing uses then is removed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import libcst as cst
from libcst import matchers as m

from ..syntax.folding import UNKNOWN, BranchFolder, Unread
from ..syntax.reading import Names, Substitution, assigned, code, is_docstring, names
from ..syntax.walking import Visitor, changed, nodes_of
from .program import methods, parameters

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


LONGEST = 104  # Columns of a statement into which a variable is put
PRODUCTS = (cst.Multiply, cst.Divide, cst.MatrixMultiply)  # Before them a product needs no brackets


def read_attributes(definitions: dict[str, cst.CSTNode], model: str) -> dict[str, set[str]]:
    """Attributes that are read of objects of each class; functions know that of the name `model` as `model`."""
    owners = {name: names(node).owners for name, node in definitions.items()}
    outside = {attribute for found in owners.values() for owner, attribute in found if owner not in ("self", "model")}
    of_model = {attribute for found in owners.values() for owner, attribute in found if owner == "model"}
    return {
        name: outside
        | {attribute for owner, attribute in found if owner == "self"}
        | (of_model if name == model else set())
        for name, found in owners.items()
    }


def cleaned(node: cst.FunctionDef, read: set[str]) -> cst.FunctionDef:
    """A function without second names, and without assignments that nothing reads (`read` are attributes of `self`)."""
    found = names(node.body)
    aliases: dict[str, Any] = {
        name: assign.value
        for name, assign in assigned(node.body).items()
        if found.written.count(name) == 1 and is_alias(assign.value, node, found.written)
    }
    for line in nodes_of(node.body, cst.SimpleStatementLine) if aliases else ():
        if any(one.comment for one in line.leading_lines):  # it is about the variable
            aliases.pop(code(line).rpartition("\n")[2].partition(" = ")[0].strip(), None)
    unread = {name for name in found.written if name not in found.read} | aliases.keys()
    body = Unread(unread, read).visit(node.body)
    return changed(node, body=Substitution(aliases).visit(body) if aliases else body)


class Joiner(Visitor):
    """Put a variable that the next statement alone reads into that statement, where the line stays short."""

    def __init__(self) -> None:
        self.functions: list[Names] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.append(names(node.body))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.functions.pop()
        return updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        kept: list[Any] = []
        for statement in updated_node.body:
            together = self.joined(kept[-1], statement) if kept else None
            if together is None:
                kept.append(statement)
            else:
                kept[-1] = together
        return changed(updated_node, body=kept)

    def joined(self, first: Any, last: Any) -> cst.SimpleStatementLine | None:
        """Two statements as one, None if they stay two."""
        assigns = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())])])
        reads = m.SimpleStatementLine([m.Assign() | m.Return()], leading_lines=[])
        if not m.matches(first, assigns) or not m.matches(last, reads) or last.body[0].value is None:
            return None
        assign, reader = first.body[0], last.body[0]
        name, text = code(assign.targets[0].target), code(last)
        renewed = isinstance(reader, cst.Return) or code(reader.targets[0].target) == name
        function = self.functions[-1]
        once = function.read.count(name) == function.written.count(name) == 1
        in_scope = "lambda" in text or " for " in text or "lambda" in code(assign.value)
        if names(reader.value).read.count(name) != 1 or not (renewed or once) or in_scope:
            return None
        value: Any = assign.value
        of_reader = code(reader.value)
        as_arguments = (f"({name})", f"({name},", f", {name})", f", {name},")
        whole = of_reader == name or of_reader.startswith(f"{name}, ") or any(one in text for one in as_arguments)
        is_product = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, PRODUCTS)
        whole = whole or (is_product and of_reader.startswith((f"{name} * ", f"{name} / ")))
        if not whole and not isinstance(value, (cst.Call, cst.Name, cst.Attribute, cst.Subscript)):
            value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        together = reader.with_changes(value=Substitution({name: value}).visit(reader.value))
        statement = last.with_changes(body=[together], leading_lines=first.leading_lines)
        return None if len(code(together)) > LONGEST else statement


def is_alias(value: cst.BaseExpression, function: cst.FunctionDef, written: list[str]) -> bool:
    """Whether an expression is another name of a parameter, of a module, or of a variable that is written once."""
    if isinstance(value, cst.Name):
        is_parameter = any(value.value == param.name.value for param in function.params.params)
        return written.count(value.value) == (0 if is_parameter else 1)
    return m.matches(value, m.Attribute(m.Name("self") | m.Name("config")))


def inlined(node: cst.CSTNode) -> cst.CSTNode:
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
