"""One file out of the plain code of a model."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import libcst as cst

from ..compacting import WIDTH, with_descriptions_at_ends, with_full_signatures
from ..partial_evaluation import code, names
from ..plain.config import Config
from ..walking import nodes_of
from .program import Substitution
from .specialising import Program

MODELS = {
    "causal-lm": "CausalLM",
    "seq2seq-lm": "Seq2SeqLM",
    "masked-lm": "MaskedLM",
    "sequence-classification": "SequenceClassifier",
    "token-classification": "TokenClassifier",
}
"""The plain class of each task."""

IMPORTS = {
    "math": "import math",
    "sys": "import sys",
    "Callable": "from collections.abc import Callable",
    "dataclass": "from dataclasses import dataclass",
    "replace": "from dataclasses import dataclass, replace",
    "Path": "from pathlib import Path",
    "torch": "import torch",
    "load_file": "from safetensors.torch import load_file, save_file",
    "Tensor": "from torch import Tensor, nn",
    "F": "from torch.nn import functional as F",
}
"""Imports of a file, by the name that needs them, in order."""

USAGE = "python model.py --train TEXT [--load FOLDER] [--save FILE]"
"""The end of the docstring of a file that trains, which it prints where it was given something else."""

STANDARD = ("import math", "import sys", "from collections", "from dataclasses", "from pathlib")


def file_of(config: Config, summary: str, decoder: dict[str, Any], definitions: Mapping[str, cst.CSTNode]) -> str:
    """Write the file of a model, by its settings, its docstring, and its decoder's other settings."""
    model = MODELS.get(config.task, {"decoder": "Decoder", "encoder": "Encoder"}.get(config.stack, "EncoderDecoder"))
    trains = config.task in MODELS and "works-on-features" not in config.quirks
    scripts = ["load", "train", "main"] if trains else ["load"]
    summary = textwrap.fill(
        f"{summary} {USAGE}" if trains else summary, 114, break_on_hyphens=False, break_long_words=False
    )
    given: dict[str, Any] = {}
    if config.task not in MODELS:
        given = {"cache": None, "start": 0, "memory": None, "memory_mask": None, "depths": None}
    if not config.generates_with_cache:
        given |= {"cache": None, "start": 0, "memory": None}
    if config.type_vocab_size is None or config.stack != "encoder":
        given["token_type_ids"] = None
    definitions = Program(config, [model, *scripts], given, definitions).specialised()
    aliases = Substitution({name: alias(node) for name, node in definitions.items() if alias(node) is not None})
    written_out = [code(aliases.visit(node)) for node in definitions.values() if alias(node) is None]
    body = "\n\n".join(written_out)
    body = re.sub(r"def main\(\).*", 'if __name__ == "__main__":', body)
    body = with_comments_at_ends(with_descriptions_at_ends(with_full_signatures(body)))
    changes = "".join(f", {name}={value!r}" for name, value in decoder.items() if f"config.{name}" in body)
    body = body.replace("config.of_decoder()", f"replace(config{changes})" if changes else "config")
    body = body.replace("Model", model)
    body = "\n".join(broken(line) for line in body.splitlines())
    whole = f"{settings(body, config)}\n\n{body}\n"
    return f'"""{summary}"""\n\n{imports(whole)}\n\n{whole}'


def alias(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The type that an assignment gives a name, None for a class or a function."""
    assign = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return assign.value if isinstance(assign, cst.Assign) else None


def with_comments_at_ends(text: str) -> str:
    """Comments of one line at the end of the line that they are about, where there is room."""
    kept: list[str] = []
    for line in text.splitlines():
        above = kept[-1] if kept else ""
        is_comment = above.lstrip().startswith("#") and not line.lstrip().startswith("#")
        several = len(kept) > 1 and kept[-2].lstrip().startswith("#")
        if is_comment and not several and not line.endswith("(") and len(line) + 2 + len(above.lstrip()) <= WIDTH:
            kept[-1] = f"{line}  {above.lstrip()}"
        else:
            kept.append(line)
    return "\n".join(kept)


def broken(line: str) -> str:
    """A line that is too long, broken after a comma of its outermost brackets."""
    if len(line) <= WIDTH:
        return line
    opened: list[int] = []
    places = []
    for place, sign in enumerate(line):
        if sign in "([{":
            opened.append(place)
        elif sign in ")]}" and opened:
            opened.pop()
        elif sign == "," and opened and place < WIDTH:
            places.append((-len(opened), place + 1, opened[-1] + 1))
    if not places:
        return line
    _, end, column = max(places)
    return f"{line[:end]}\n{broken(' ' * column + line[end:].lstrip())}"


def settings(body: str, config: Config) -> str:
    """The dataclass of the settings that are read."""
    read: dict[str, None] = {}
    for node in nodes_of(cst.parse_module(body), cst.Attribute):
        if code(node.value) in ("config", "self.config", "model.config"):
            read[node.attr.value] = None
    order = [name for name in vars(config) if name in read]
    return "@dataclass\nclass Config:\n" + "\n".join(field(name, getattr(config, name)) for name in order)


def field(name: str, value: Any) -> str:
    """A setting with its type, on several lines if it is long."""
    line = f"    {name}: {annotation(value)} = {written(value)}"
    if len(line) <= WIDTH:
        return line
    indent = " " * 8
    items = textwrap.fill(written(value)[1:-1], WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"    {name}: {annotation(value)} = (\n{items}\n    )"


def annotation(value: Any) -> str:
    return f"tuple[{type(value[0]).__name__}, ...]" if isinstance(value, (list, tuple)) else type(value).__name__


def written(value: Any) -> str:
    """A setting as it is written in code."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(written(one) for one in value)},)"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def imports(body: str) -> str:
    read = set(names(cst.parse_module(body)).read)
    needed = [line for name, line in IMPORTS.items() if name in read]
    if IMPORTS["replace"] in needed:
        needed.remove(IMPORTS["dataclass"])
    standard = [line for line in needed if line.startswith(STANDARD)]
    return "\n".join(standard) + "\n\n" + "\n".join(line for line in needed if line not in standard)
