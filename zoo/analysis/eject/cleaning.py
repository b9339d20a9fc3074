"""Removal of what folding leaves without use: variables, attributes, counters, methods that are called once."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from ..syntax.reading import Names, Substitution, assigned, code, is_docstring, names
from ..syntax.unused import Unread
from ..syntax.walking import Visitor, changed, nodes_of
from .program import methods, parameters

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
        if not all(isinstance(one, cst.SimpleStatementLine) for one in (first, last)) or last.leading_lines:
            return None
        assign, reader = first.body[0], last.body[0]
        if not isinstance(assign, cst.Assign) or not isinstance(reader, (cst.Assign, cst.Return)):
            return None
        name, text = code(assign.targets[0].target), code(last)
        if not isinstance(assign.targets[0].target, cst.Name) or reader.value is None:
            return None
        renewed = isinstance(reader, cst.Return) or code(reader.targets[0].target) == name
        function = self.functions[-1]
        once = function.read.count(name) == function.written.count(name) == 1
        if (
            names(reader.value).read.count(name) != 1
            or not (renewed or once)
            or "lambda" in text
            or " for " in text
            or "lambda" in code(assign.value)
        ):
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
