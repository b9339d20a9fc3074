"""The Python that pages and docstrings show, found and run.

    python snippets.py HOME DOCUMENT...

runs the Python of each document from top to bottom in a folder of its own, and writes a line of JSON for each: what it
printed, and what went wrong. One process does all of them, because what they import takes longer than most of what
they do.
"""

import ast
import importlib
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
PACKAGES = {"zoo": "zoo", "registry": "zoo.registry", "converters": "zoo.converters"}


@dataclass(frozen=True)
class Snippet:
    """A fenced block: the word after the fence, its lines, and the number of its first line, from 1."""

    language: str
    code: str
    line: int


def snippets(text: str, first: int = 1) -> list[Snippet]:
    """Find the fenced blocks of a text that begins in a given line."""
    return [Snippet(one[1], one[2], first + text[: one.start(2)].count("\n")) for one in FENCE.finditer(text)]


def docstrings(file: Path) -> Iterator[tuple[str, int]]:
    """The docstrings of a source file, and where they begin."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield text, node.body[0].lineno


def python_of(document: str) -> list[Snippet]:
    """The snippets of Python in a page, or in the docstrings of a source file."""
    file = ROOT / document
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        found = snippets(text)
    elif "```python" in text:
        found = [snippet for docstring, line in docstrings(file) for snippet in snippets(docstring, line)]
    else:
        found = []
    return [snippet for snippet in found if snippet.language == "python"]


def namespace_of(document: str) -> dict[str, Any]:
    """Names before the first snippet: none on a page; in a docstring those of its module, and zoo."""
    if not document.endswith(".py"):
        return {"__name__": "__main__"}
    top, *rest = Path(document).with_suffix("").parts
    module = importlib.import_module(".".join([PACKAGES[top], *rest]).removesuffix(".__init__"))
    return {**vars(module), "zoo": importlib.import_module("zoo")}


def run(document: str, folder: Path, prepare: Callable[[dict[str, Any]], object] | None) -> str:
    """Run the Python of a document in an empty folder after `prepare`, and return what it has printed."""
    names, printed = namespace_of(document), io.StringIO()
    os.chdir(folder)
    with redirect_stdout(printed):
        if prepare:
            prepare(names)
        for snippet in python_of(document):
            # Tracebacks name the line of the document.
            exec(compile("\n" * (snippet.line - 1) + snippet.code, ROOT / document, "exec"), names)
    return printed.getvalue()


def main(home: Path, documents: Sequence[str]) -> None:
    import prepared

    for document in documents:
        folder = home / document
        folder.mkdir(parents=True)
        answer: dict[str, str] = {"document": document}
        try:
            answer["printed"] = run(document, folder, prepared.BEFORE.get(document))
        except Exception:  # any exception is the outcome that the test shows, and others come after it
            answer["error"] = traceback.format_exc()
        sys.__stdout__.write(json.dumps(answer) + "\n")
        sys.__stdout__.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
