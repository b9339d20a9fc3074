"""Definitions and imports of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import libcst as cst
from libcst.helpers import get_absolute_module_from_package_for_import

from .layout import WIDTH, wrapped
from .reading import Import, is_docstring, names
from .walking import changed

Place = tuple[str, str]  # A module's name and a name in it

TYPE_CHECKING = "TYPE_CHECKING"


class Imported(NamedTuple):
    """A name that a statement imports."""

    bound: str  # As it is called where it is imported
    place: Place  # Where it comes from
    source: str  # The module after "from", empty in "import a.b as c"
    text: str  # What is after "import"


@dataclass
class Module:
    """The source of a module, statement by statement; imports from `own` packages are followed, others stay."""

    name: str
    is_package: bool
    source: str
    own: tuple[str, ...]
    imports: dict[str, Place] = field(default_factory=dict, init=False)
    for_types: dict[str, Place] = field(default_factory=dict, init=False)
    foreign: list[tuple[Imported, bool]] = field(default_factory=list, init=False)  # And whether for types alone
    definitions: dict[str, list[Any]] = field(default_factory=dict, init=False)
    everything_of: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._read(cst.parse_module(self.source).body, for_types=False)

    def _read(self, body: Sequence[Any], *, for_types: bool) -> None:
        last: str | None = None
        for statement in body:
            found = defined(statement)
            match statement:
                case cst.SimpleStatementLine([cst.Import() | cst.ImportFrom() as one]):
                    self._read_import(one, for_types)
                case cst.SimpleStatementLine([cst.Expr(cst.Call(cst.Attribute(cst.Name(filled), cst.Name("update"))))]):
                    if filled in self.definitions:
                        self.definitions[filled].append(statement)
                case cst.If():
                    branches = (statement.body, getattr(statement.orelse, "body", None))
                    inner = [name for each in branches if each for one in each.body for name in defined(one)]
                    self.definitions |= {name: [statement] for name in inner}
                    if not inner and TYPE_CHECKING in names(statement.test).read:
                        self._read(statement.body.body, for_types=True)
                case cst.Try():  # to import what need not be installed
                    inside = [each for one in names(statement.body).imports for each in self.imported(one)]
                    self.definitions |= {one.bound: [statement] for one in inside if not one.source}
                case _ if last is not None and is_docstring(statement):
                    self.definitions[last].append(statement)
            for name in found:
                self.definitions.setdefault(name, []).append(with_own_comments(statement))
            last = found[0] if found else None

    def _read_import(self, statement: Import, for_types: bool) -> None:
        own = self.own_imports(statement)
        (self.for_types if for_types else self.imports).update(own)
        self.everything_of += [source for source, name in own.values() if name == "*"]
        if not own:
            found = self.imported(statement)
            self.foreign += [(one, for_types) for one in found if one.source != "__future__"]

    def own_imports(self, statement: Import) -> dict[str, Place]:
        """Names that a statement imports of own packages, each with its place."""
        found = self.imported(statement)
        return {one.bound: one.place for one in found if one.place[0].partition(".")[0] in self.own}

    def imported(self, statement: Import) -> Iterator[Imported]:
        """Names that a statement imports, each with its place."""
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        pairs: list[tuple[str, str | None]] = [("*", None)]
        if not isinstance(statement.names, cst.ImportStar):
            pairs = [(alias.evaluated_name, alias.evaluated_alias) for alias in statement.names]
        for name, other in pairs:
            text = f"{name} as {other}" if other else name
            if isinstance(statement, cst.ImportFrom):
                source = get_absolute_module_from_package_for_import(package, statement) or ""
                yield Imported(other or name, (source, name), source, text)
            else:
                parent, _, last = name.rpartition(".")
                yield Imported(other or name.partition(".")[0], (parent, last), "", text)


def defined(statement: cst.CSTNode) -> list[str]:
    match statement:
        case cst.FunctionDef() | cst.ClassDef():
            return [statement.name.value]
        case cst.SimpleStatementLine(body=[cst.Assign() as one]):
            targets = [each.target for each in one.targets]
        case cst.SimpleStatementLine(body=[cst.AnnAssign() | cst.AugAssign() as one]):
            targets = [one.target]
        case _:
            return []
    return [name for each in targets if isinstance(each, (cst.Name, cst.Tuple)) for name in names(each).read]


def with_own_comments(statement: Any) -> Any:
    """A statement with the comments right above it alone."""
    above = statement.leading_lines
    first = next((place for place in range(len(above), 0, -1) if above[place - 1].comment is None), 0)
    return changed(statement, leading_lines=above[first:])


def import_lines(found: Mapping[str, set[str]]) -> list[str]:
    """Import statements, by the module after "from" what is imported from it, sorted; "" for whole modules."""
    lines = [f"import {text}" for text in sorted(found.get("", ()))]
    for source, texts in sorted(found.items()):
        if not source or not texts:
            continue
        line = f"from {source} import {', '.join(sorted(texts))}"
        if len(line) > WIDTH:
            wrapped_names = wrapped([f"{text}," for text in sorted(texts)], " " * 4)
            line = "\n".join([f"from {source} import (", *wrapped_names, ")"])
        lines.append(line)
    return lines
