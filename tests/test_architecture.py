"""Imports point one way: a room imports only the rooms above it in docs/architecture.md."""

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
LISTING = re.compile(r"## The rooms, and which way they look\n\n```\n(.*?)```", re.DOTALL)
ROOMS = {
    "base": "errors, files that are written whole, folders and their manifests, transformers' Auto classes",
    "registry": "names of variants, parts, tasks and weights; cards; plugins; knows no model",
    "fast": "what makes models faster; knows no model of the zoo",
    "models": "what a saved checkpoint needs in order to run: configuration, parts, stacks, heads",
    "variants": "the built-in variants, one file a family",
    "building": "name, folder or repository -> model; weights by name; int8 weights",
    "analysis": "drawings, source, parameters, operations, memory, training runs on paper",
    "converters": "checkpoints of other code in, models of the zoo out",
    "hub": "push to and pull from the Hugging Face Hub, cards",
    "data": "tokenizers, corpora and their token shards, tasks with their data and scores",
    "training": "training, generation, evaluation, prediction",
    "serving": "OpenAI's API, local servers, checkpoints in vLLM",
    "inside": "attention, heads, early predictions, gradients, the explorer",
    "comparison": "runs side by side, statistics, reports, benchmarks, claims",
    "testing": "the checks that every variant and part passes, a plugin's too",
    "cli": "one file a verb or a few that are alike, no logic of its own",
}
"""The rooms of the library with their duties. Each may import the rooms above it."""
UPWARD = {("building", "converters"), ("building", "hub"), ("converters", "hub")}
"""Imports that point down the list, inside functions: a folder may hold other code's weights, or be on the Hub."""


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
ENTRIES = {"zoo", "zoo.__main__"}  # What only points to others: public names, and `python -m zoo`
SHOW_THEMSELVES = {"comparison", "analysis", "inside"}
"""Rooms with results that have methods to write or draw themselves, which import the code for it."""


def room_of(module: str) -> str:
    """The room of a module: models of zoo.models.attention."""
    return module.split(".")[1]


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
    """Every import from one room to another: the importing module, its room, and the imported room."""
    return {
        (module, room_of(module), room_of(target))
        for module, target in imports()
        if module not in ENTRIES and target != "zoo" and room_of(target) != room_of(module)
    }


def test_every_import_points_up_the_list():
    rank = {room: line for line, room in enumerate(ROOMS)}
    down = {(room, target) for _, room, target in arrows() if rank[target] > rank[room]}
    where = sorted(module for module, room, target in arrows() if (room, target) in down - UPWARD)
    assert down == UPWARD, f"unlisted: {down - UPWARD} in {where}; listed in vain: {UPWARD - down}"


def test_modules_of_a_room_import_each_other_one_way():
    inside: dict[str, nx.DiGraph] = defaultdict(nx.DiGraph)
    for module, target in imports():
        if module not in ENTRIES and target != "zoo" and room_of(target) == room_of(module) and target != module:
            inside[room_of(module)].add_edge(module, target)
    circles = {room for room, graph in inside.items() if not nx.is_directed_acyclic_graph(graph)}
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


def test_the_rooms_are_those_of_the_document():
    (listing,) = LISTING.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert listing == "".join(f"{room:<12}{duty}\n" for room, duty in ROOMS.items())
    assert set(ROOMS) == {room_of(module) for module in MODULES if module not in ENTRIES}
    assert len({path.name for path in (ROOT / "zoo").iterdir() if path.name[0] not in "_."} - {"py.typed"}) <= 14
