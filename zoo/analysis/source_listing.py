"""The source that a forward of a variant passes, in reading order: from the head down to the norm."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from zoo.base.errors import ConfigError, InputError
from zoo.base.printed import Part, Printed, Source
from zoo.building.builder import build
from zoo.models import ZooPreTrainedModel
from zoo.registry import VARIANTS, parse_name

from .inputs import inputs_of

if TYPE_CHECKING:
    from zoo.building.literals import TaskName, VariantName

READABLE = ("zoo.models.", "zoo.variants.")  # Packages with the code of models; `zoo.fast` computes the same, faster
LENGTH = 4  # Tokens of the sequence that is run


@dataclass(frozen=True)
class Function:
    """A function that a forward passes."""

    file: str  # Where it is, from the folder that the package lies in
    line: int  # Where it begins, decorators included
    owner: str | None  # Names of the class that it is a method of and of its bases, as written: "ZooDecoder(ZooStack)"
    name: str
    text: str  # Its source, indented as a method is, with the first sentence of its docstring
    lines_of_code: int  # Lines without docstring, comments and blank lines


@dataclass(frozen=True)
class Listing(Printed):
    """The source of a variant, as `print` shows it."""

    name: str  # The variant's name, as it was asked for
    declaration: Function | None  # Its declaration; None for a registered function
    builder: Function  # Its builder
    functions: tuple[Function, ...]  # Calls of a forward, file by file, both in the order of the first call

    @property
    def files(self) -> tuple[str, ...]:
        """The files to open for reading a forward, in reading order."""
        return tuple(dict.fromkeys(function.file for function in self.functions))

    @property
    def lines_of_code(self) -> int:
        return sum(function.lines_of_code for function in self.functions)

    def shown(self) -> Iterator[Part]:
        """The declaration, the builder, then every file with its functions under their classes."""
        lines: list[str] = []
        place: tuple[str, str | None] = ("", None)
        for function in filter(None, (self.declaration, self.builder, *self.functions)):
            if function.file != place[0]:
                lines.append(f"# {function.file}:{function.line}\n")
            if function.owner is not None and (function.file, function.owner) != place:
                lines.append(f"class {function.owner}:")
            lines.append(f"{function.text}\n")
            place = (function.file, function.owner)
        count = f"# {len(self.functions)} functions, {self.lines_of_code} lines of code, in {len(self.files)} files"
        yield Source("\n".join((*lines, count)))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def show_code(name: VariantName | str, task: TaskName | str | None = None) -> Listing:
    """List the source that a forward of a variant passes: found by running a small one.

    Args:
        name: A variant's name, possibly with settings: "gpt2-style", "vanilla+faithful".
        task: The model's task, by default the variant's first.

    Returns:
        The declaration and the builder, and the functions in the order in which they are called.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, or values contradict each other.
        InputError: When the builder is no function, or the source of something is not there to be read.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    builder = variant.builder
    if not isinstance(builder, FunctionType):
        raise InputError(f"the builder of {spec.name!r} is a {type(builder).__name__}; only functions can be listed")
    try:
        model = build(str(dataclasses.replace(spec, preset=spec.preset or "tiny")), task)
    except ConfigError:  # of settings that do not fit small sizes
        model = build(name, task)
    functions = [function_of(code) for code in called(model)]
    declaration = variant.place and declaration_at(variant.name, *variant.place)
    return Listing(name, declaration, function_of(builder.__code__), tuple(side_by_side(functions)))


def side_by_side(functions: list[Function]) -> list[Function]:
    """Put functions of one file, and in it methods of one class, side by side, otherwise in their order."""
    files = list(dict.fromkeys(function.file for function in functions))
    owners = list(dict.fromkeys(function.owner or function.name for function in functions))
    return sorted(functions, key=lambda one: (files.index(one.file), owners.index(one.owner or one.name)))


def called(model: ZooPreTrainedModel) -> list[CodeType]:
    """Run a model once, and record which of its own functions it calls."""
    foreign = {type(module).__module__ for module in model.modules()}
    plugins = {name for name in foreign if not name.startswith(("torch.", "transformers.", "zoo."))}
    found: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and (module.startswith(READABLE) or module in plugins) and is_function(frame.f_code):
            found.setdefault(frame.f_code)

    inputs = inputs_of(model, torch.arange(LENGTH)[None] + 3)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        sys.setprofile(before)
    return list(found)


def is_function(code: CodeType) -> bool:
    """Whether code is a function in a file, not a lambda or comprehension in one, nor what a dataclass generates."""
    return not code.co_name.startswith("<") and not code.co_filename.startswith("<")


@cache
def definitions(source: str) -> dict[int, tuple[ast.FunctionDef, str | None]]:
    tree = ast.parse(source)

    def walk(node: ast.AST, owner: str | None) -> Iterator[tuple[int, tuple[ast.FunctionDef, str | None]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield min([child.lineno, *(one.lineno for one in child.decorator_list)]), (child, owner)
            inner = owner
            if isinstance(child, ast.ClassDef):
                bases = ", ".join(map(ast.unparse, child.bases))
                inner = f"{child.name}({bases})" if bases else child.name
            yield from walk(child, inner)

    return dict(walk(tree, None))


def function_of(code: CodeType) -> Function:
    source = "".join(linecache.getlines(code.co_filename))  # of a notebook's cell, too
    node, owner = definitions(source).get(code.co_firstlineno, (None, None))
    if node is None or node.name != code.co_name:
        raise InputError(f"the source of {code.co_name!r} cannot be read: {code.co_filename}:{code.co_firstlineno}")
    lines = source.splitlines()[: node.end_lineno]
    docstring = range(0)
    if (text := ast.get_docstring(node)) is not None:
        docstring = range(node.body[0].lineno - 1, node.body[0].end_lineno or 0)
        indent = " " * node.body[0].col_offset
        lines[docstring.start] = f'{indent}"""{text.splitlines()[0]}"""'
    first = code.co_firstlineno - 1
    kept = [place for place in range(first, len(lines)) if place not in docstring[1:]]
    counted = (place for place in kept if place not in docstring and lines[place].strip()[:1] not in ("", "#"))
    text = textwrap.indent(textwrap.dedent("\n".join(lines[place] for place in kept)), "    " if owner else "")
    place = place_of(Path(code.co_filename).absolute())
    return Function(place, first + 1, owner, node.name, text, sum(1 for _ in counted))


def declaration_at(name: str, file: str, line: int) -> Function | None:
    """Read the call that declares a variant; None where its source is not there."""
    source = "".join(linecache.getlines(file))
    for node in ast.parse(source).body:
        if node.lineno <= line <= (node.end_lineno or 0):
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
            return Function(place_of(Path(file).absolute()), node.lineno, None, name, "\n".join(lines), len(lines))
    return None


def place_of(file: Path) -> str:
    """Write a file's path from the folder that its package lies in."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return file.relative_to(folder).as_posix()
