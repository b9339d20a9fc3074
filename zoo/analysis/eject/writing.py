"""One file out of the plain code of a model."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import libcst as cst

from ..plain.config import Config
from ..syntax.layout import WIDTH, broken, with_comments_at_ends, with_descriptions_at_ends, with_full_signatures
from ..syntax.modules import Imported, import_lines
from ..syntax.reading import Names, Substitution, code, names
from .program import Plain
from .specialising import Program

MODELS = {
    "causal-lm": "CausalLM",
    "seq2seq-lm": "Seq2SeqLM",
    "masked-lm": "MaskedLM",
    "sequence-classification": "SequenceClassifier",
    "token-classification": "TokenClassifier",
}
"""The plain class of each task."""

USAGE = "python model.py --train TEXT [--load FOLDER] [--save FILE]"
"""The end of the docstring of a file that trains, which it prints where it was given something else."""


def file_of(config: Config, summary: str, decoder: dict[str, Any], plain: Plain) -> str:
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
    definitions = Program(config, [model, *scripts], given, plain.definitions).specialised()
    aliases = Substitution({name: alias(node) for name, node in definitions.items() if alias(node) is not None})
    written_out = [code(aliases.visit(node)) for node in definitions.values() if alias(node) is None]
    body = "\n\n".join(written_out)
    body = re.sub(r"def main\(\).*", 'if __name__ == "__main__":', body)
    body = with_comments_at_ends(with_descriptions_at_ends(with_full_signatures(body)))
    changes = "".join(f", {name}={value!r}" for name, value in decoder.items() if f"config.{name}" in body)
    body = body.replace("config.of_decoder()", f"replace(config{changes})" if changes else "config")
    body = body.replace("Model", model)
    body = "\n".join(broken(line) for line in body.splitlines())
    read = names(cst.parse_module(body))
    heads = f"{imports(read, plain.imports)}\n\n{settings(read, config)}"
    return f'"""{summary}"""\n\n{heads}\n\n{body}\n'


def alias(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The type that an assignment gives a name, None for a class or a function."""
    assign = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return assign.value if isinstance(assign, cst.Assign) else None


def settings(read: Names, config: Config) -> str:
    """The dataclass of the settings that are read."""
    found = {name for owner, name in read.owners if owner in ("config", "self.config", "model.config")}
    return "@dataclass\nclass Config:\n" + "\n".join(field(*one) for one in vars(config).items() if one[0] in found)


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


def imports(read: Names, known: Mapping[str, Imported]) -> str:
    """Import statements of what a file reads: from Python's own modules, then from others."""
    sections = [defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)]
    sections[0]["dataclasses"] = {"dataclass", *{"replace"}.intersection(read.read)}
    for name in known.keys() & read.read:
        one = known[name]
        package = (one.place[0] or one.place[1]).partition(".")[0]
        sections[package not in sys.stdlib_module_names][one.source].add(one.text)
    return "\n\n".join("\n".join(import_lines(section)) for section in sections)
