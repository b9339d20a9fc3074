"""Visitors of libcst's trees that skip whitespace and punctuation and keep nodes in which nothing changes.

libcst's own rebuild every node, whitespace too, at each visit. Ejecting a model visits each of its functions many
times, and keeps what is known of nodes that have not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import libcst as cst

PUNCTUATION = re.compile("white|lines|header|footer|par$|[lr]br|comma|colon|equal|dot|operator|async|indent")
"""Attributes of nodes that are whitespace or punctuation, by what is in their names."""

NO_EXPRESSIONS = {("Attribute", "attr"), ("Arg", "keyword"), ("Param", "name"), ("FunctionDef", "name")}
"""Names of attributes, parameters and functions, which are no variables."""


@cache
def attributes(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """Attributes of nodes of a class that are visited."""
    names = (field.name for field in fields(kind) if (kind.__name__, field.name) not in NO_EXPRESSIONS)
    return tuple(name for name in names if not PUNCTUATION.search(name))


class Visitor:
    """A visitor with methods `visit_KIND(node)` and `leave_KIND(original, updated)`, as libcst's transformers have."""

    plans: dict[type[cst.CSTNode], tuple[Any, Any, tuple[str, ...]]]
    """The two methods and the attributes to visit by the class of a node, each class added when it is first met."""

    def __init_subclass__(cls) -> None:
        cls.plans = {}

    def plan(self, node: cst.CSTNode) -> tuple[Any, Any, tuple[str, ...]]:
        """The entry of `plans` for a node that has none."""
        kind = type(node).__name__
        enter, leave = (getattr(type(self), f"{when}_{kind}", None) for when in ("visit", "leave"))
        self.plans[type(node)] = enter, leave, attributes(type(node))
        return self.plans[type(node)]

    def visit(self, node: cst.CSTNode) -> Any:
        """Visit a node; a new one if something in it changed."""
        enter, leave, names = self.plans.get(type(node)) or self.plan(node)
        updated = node
        if enter is None or enter(self, node) is not False:
            changes: dict[str, Any] = {}
            for name in names:
                value = getattr(node, name)
                kind: Any = type(value)
                if kind is tuple or kind is list:
                    if value and not is_same(sequence := self.visit_all(value), value):
                        changes[name] = sequence
                elif is_node(kind) and (new := self.visit(value)) is not value:
                    changes[name] = new
            updated = node.with_changes(**changes) if changes else node
        return updated if leave is None else leave(self, node, updated)

    def visit_all(self, nodes: Any) -> list[cst.CSTNode]:
        """Visit the nodes of a sequence. A node may be removed, or replaced by several."""
        found: list[cst.CSTNode] = []
        for node in nodes:
            new = self.visit(node)
            if new is node:
                found.append(node)
            elif isinstance(new, cst.FlattenSentinel):
                found += new
            elif not isinstance(new, cst.RemovalSentinel):
                found.append(new)
        return found


@cache
def is_node(kind: type) -> bool:
    """Whether a class is one of nodes; asking libcst's abstract class takes long."""
    return issubclass(kind, cst.CSTNode)


def is_same(new: Any, old: Any) -> bool:
    """Whether an attribute's value, which may be a sequence, is unchanged."""
    if isinstance(old, (tuple, list)):
        return len(new) == len(old) and all(one is other for one, other in zip(new, old, strict=True))
    return new is old


def changed(node: Any, **changes: Any) -> Any:
    """A node with other attributes; itself if these are the ones that it has."""
    same = all(is_same(new, getattr(node, name)) for name, new in changes.items())
    return node if same else node.with_changes(**changes)


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nodes right below a node that are visited."""
    for name in attributes(type(node)):
        value = getattr(node, name)
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, cst.CSTNode):
                yield one


def nodes_of(node: cst.CSTNode, kind: type) -> Iterator[Any]:
    """Nodes of a class in a node, itself included."""
    if isinstance(node, kind):
        yield node
    for one in children(node):
        yield from nodes_of(one, kind)
