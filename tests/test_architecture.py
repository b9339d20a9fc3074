"""Imports point one way: as docs/architecture.md lists the parts, each imports only what stands above it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

import zoo

ROOT = Path(__file__).parents[1]
FOLDERS = {"zoo": "zoo", "registry": "zoo.registry", "converters": "zoo.converters"}
LISTING = re.compile(r"## The parts, and which way they look\n\n```\n(.*?)```", re.DOTALL)


def modules() -> dict[str, Path]:
    """Every module of the library, by name."""
    found = {}
    for folder, package in FOLDERS.items():
        for file in (ROOT / folder).rglob("*.py"):
            path = file.relative_to(ROOT / folder).with_suffix("")
            parts = path.parts[:-1] if path.name == "__init__" else path.parts
            found[".".join((package, *parts))] = file
    return found


MODULES = modules()
ENTRIES = {"zoo", "zoo.__main__"}
"""What only points to others: public names, and `python -m zoo`."""
SHOW_THEMSELVES = {"zoo.comparison", "zoo.drawing", "zoo.inside"}
"""Parts whose results have methods that write or draw them, which import what does so."""


def part_of(module: str) -> str:
    """The part that a module belongs to: zoo.models of zoo.models.attention."""
    return ".".join(module.split(".")[:2])


def ranks() -> dict[str, int]:
    """The line on which architecture.md lists each part."""
    (listing,) = LISTING.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    return {
        part: line
        for line, text in enumerate(listing.splitlines())
        for part in re.findall(r"zoo\.\w+", text.split("  ")[0])
    }


def imports_in(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All import statements, those in functions too, but none for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from imports_in(ast.Module([other], []))
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        else:
            yield from imports_in(child)


def targets(module: str, statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules of the library that a statement imports, public names of `zoo` by where they live."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names if alias.name.startswith("zoo."))
        return
    source = statement.module or ""
    if statement.level:
        is_package = MODULES[module].name == "__init__.py"
        base = module.split(".")[: len(module.split(".")) - statement.level + is_package]
        source = ".".join((*base, source)) if source else ".".join(base)
    if source.partition(".")[0] != "zoo":
        return
    for alias in statement.names:
        inner = f"{source}.{alias.name}"
        if inner in MODULES:
            yield inner
        elif source == "zoo":
            yield zoo._HOMES.get(alias.name, "zoo")
        else:
            yield source


@cache
def imports() -> set[tuple[str, str]]:
    """Every module of the library that another one imports: the one that imports, and the one that is imported."""
    return {
        (module, target)
        for module, file in MODULES.items()
        for statement in imports_in(ast.parse(file.read_text(encoding="utf-8")))
        for target in targets(module, statement)
    }


def arrows() -> set[tuple[str, str, str]]:
    """Every import from one part to another: the module that imports, its part, and the part that is imported."""
    return {
        (module, part_of(module), part_of(target))
        for module, target in imports()
        if part_of(target) != part_of(module) and module not in ENTRIES and target != "zoo"
    }


def test_every_import_points_upwards_or_is_listed():
    rank = ranks()
    listed = set(re.findall(r"`(zoo\.\w+) -> (zoo\.\w+)`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    down = {(part, target) for _, part, target in arrows() if not rank.get(target, len(rank)) < rank.get(part, -1)}
    where = sorted(module for module, part, target in arrows() if (part, target) in down - listed)
    assert down == listed, f"unlisted: {down - listed} in {where}; listed in vain: {listed - down}"


def test_modules_of_a_part_import_each_other_one_way():
    inside: dict[str, nx.DiGraph] = defaultdict(nx.DiGraph)
    for module, target in imports():
        if part_of(target) == part_of(module) and target != module:
            inside[part_of(module)].add_edge(module, target)
    circles = {part for part, graph in inside.items() if not nx.is_directed_acyclic_graph(graph)}
    assert circles == SHOW_THEMSELVES


def test_an_import_inside_a_function_is_seen_and_one_for_types_is_not():
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from zoo.cli import main
def late():
    from zoo.hub import pull
"""
    found = [target for statement in imports_in(ast.parse(source)) for target in targets("zoo.models", statement)]
    assert found == ["zoo.hub"]


def test_every_part_is_listed_and_no_other():
    assert set(ranks()) == {part_of(module) for module in MODULES} - ENTRIES
