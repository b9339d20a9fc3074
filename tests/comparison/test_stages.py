"""A comparison is read from the request to what is shown: each stage knows those before it, and no other."""

import ast
from pathlib import Path

import zoo.comparison

ROOT = Path(zoo.comparison.__file__).parent
STAGES = ("files", "request", "plan", "setup", "run", "results", "display", "pipeline")
"""As docs/architecture.md lists them."""

NO_STAGES = ("benchmarks", "doctor.py", "repeating.py")
"""Modules of the room that use comparisons and are no part of one."""

SHOWN = ("results/comparison.py", "display")
"""`print(comparison)` shows its table, which is made of it: the one arrow that points forward, inside a function."""


def imported(file: Path) -> set[str]:
    """The stages that a file imports, inside functions too, but for type checkers' sake."""
    found = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_types = {id(one) for node in tree.body if isinstance(node, ast.If) for one in ast.walk(node)}
    here = file.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_types:
            base = here[: len(here) - node.level + 1]
            found.add((*base, *(node.module or "").split("."))[0])
    return found


def test_each_stage_knows_those_before_it():
    seen = set()
    for file in ROOT.rglob("*.py"):
        name = file.relative_to(ROOT)
        if name.parts[0] in NO_STAGES:
            continue
        if name.name == "__init__.py" and len(name.parts) == 1:
            continue
        stage = STAGES.index(name.parts[0].removesuffix(".py"))
        for other in imported(file):
            seen.add((str(name), other))
            assert STAGES.index(other) <= stage or (name.as_posix(), other) == SHOWN, f"{name} imports {other}"
    assert SHOWN in seen, "no longer needed"
    listing = (ROOT.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    assert " → ".join(f"`{stage}`" for stage in STAGES) in " ".join(listing.split())
