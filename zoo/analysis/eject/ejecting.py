"""`zoo.eject`: any model as one readable file that computes the same; and the differences of two such files."""

from __future__ import annotations

import copy
import difflib
import os
import re
import sys
import tempfile
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst

from zoo.base.errors import ConfigError, InputError, OutputExistsError, ZooWarning
from zoo.base.files import write_file
from zoo.base.printed import Note, Part, Printed, Source, Title
from zoo.building.builder import config as configure
from zoo.building.dispatch import build, load
from zoo.building.fingerprints import fingerprint
from zoo.building.loading import task_of_class
from zoo.building.weights import is_saved
from zoo.models import ZooPreTrainedModel
from zoo.models.wrapped import zoo_model
from zoo.registry import VARIANTS, describe, parse_name

from ..diff import resolve_both
from ..plain.config import Config
from ..syntax.layout import WIDTH, broken, with_comments_at_ends, with_descriptions_at_ends, with_full_signatures
from ..syntax.modules import Imported, import_lines
from ..syntax.reading import Names, Substitution, code, names
from .plugins import plain_forms, with_forms
from .program import Plain, read_plain
from .proof import prove
from .settings import decoder_changes, plain_config, refuse_unwritten
from .specialising import Program

if TYPE_CHECKING:
    from zoo.building.literals import TaskName, VariantName, WeightsName

SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "layer_norm_eps"),
)
"""Settings that are not what two variants differ in."""

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


@dataclass(frozen=True)
class Ejected(Printed):
    """A model as one file."""

    name: str  # The model, as it was given
    task: str  # Its task
    text: str  # The file
    differences: dict[str, float]  # Largest ones of outputs from the model's, by dtype, in parts of the largest output
    file: Path | None = None  # Where it was written, None if nowhere

    def shown(self) -> Iterator[Part]:
        yield Source(self.text)


@dataclass(frozen=True)
class CodeDifference(Printed):
    """The difference of two ejected files."""

    names: tuple[str, str]  # Both models
    text: str  # A unified diff
    changed: int  # Lines that are removed or added, as a unified diff counts them
    removed: int  # Lines of the first file that are not in the second
    added: int  # Lines of the second file that are not in the first

    def shown(self) -> Iterator[Part]:
        yield Title(" and ".join(self.names), "as one file each")
        yield Note(f"{self.removed} lines are removed, {self.added} added.")
        yield Source(self.text)


def eject(
    model: VariantName | WeightsName | str | Path | ZooPreTrainedModel,
    output: str | Path | None = None,
    *,
    task: TaskName | str | None = None,
    force: bool = False,
) -> Ejected:
    """Write a model as one file of PyTorch that reads from top to bottom and imports neither the zoo nor transformers.

    The file holds what the model's configuration uses and nothing else: its sizes, its modules, the task's loss,
    generation with a cache, `load(folder)` for the weights that the zoo saves, initial values, and a training loop
    (`python model.py --train text.txt`). It is run in another process without the zoo and compared with the model
    before it is written: outputs in float32 and float64, gradients of a training step, greedy tokens.

    Args:
        model: A variant's name, possibly with settings; that of weights; a folder or repository; or a model.
        output: The file to write, None for none.
        task: What the model is for, by default the variant's first task, or the saved head's.
        force: Whether to replace a file.

    Returns:
        The text, and how exact it is.

    Raises:
        UnsupportedOperationError: If a part has no plain form, or something differs, with its name.
        OutputExistsError: If the file exists.
    """
    place = None if output is None else Path(output)
    if place is not None and place.exists() and not force:
        raise OutputExistsError(f"{str(place)!r} exists; give another file, or force=True (--force) to replace it")
    if isinstance(model, (str, os.PathLike)):
        name = os.fspath(model)
        built, is_new = opened(model, task)
    else:
        built, is_new = zoo_model(model), False
        name = type(built).__name__
    of_task = task_of_class(type(built))
    text = text_of(built.config, of_task, name)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "model.py")
        trial.write_text(text, encoding="utf-8")
        differences = prove(trial, built, of_task, is_new=is_new)
    text += ending(built, differences)
    if place is not None:
        write_file(place, text)
    return Ejected(name, of_task, text, differences, place)


def code_difference(a: VariantName | str, b: VariantName | str, task: TaskName | str | None = None) -> CodeDifference:
    """Compare two variants as the files that [`zoo.eject`][] writes.

    The second has the sizes of the first, except those that its name gives; a saved one has its own.
    """
    specs, tasks = resolve_both(a, b, task)
    config = configure(specs[0], tasks[0])
    spec = parse_name(specs[1])
    given = {*spec.overrides, *VARIANTS.get(spec.name).presets.get(spec.preset or "", {})}
    sizes = {name: getattr(config, name) for name in SIZES if name not in given and not is_saved(b)}
    try:
        other = configure(specs[1], tasks[1], **sizes)
    except ConfigError as error:
        warnings.warn(f"{b} keeps its own sizes, and has not those of {a}: {error}", ZooWarning, stacklevel=2)
        other = configure(specs[1], tasks[1])
    before, after = code_lines(text_of(config, tasks[0], a)), code_lines(text_of(other, tasks[1], b))
    diff = list(difflib.unified_diff(before, after, a, b, lineterm=""))
    removed, added = (sum(line.startswith(sign) for line in diff[2:]) for sign in "-+")
    return CodeDifference((a, b), "\n".join(diff), removed + added, removed, added)


def code_lines(text: str) -> list[str]:
    """Lines of a file after its docstring, which has the model's name."""
    return text.split('"""\n', 1)[1].splitlines()


def opened(model: str | Path, task: str | None) -> tuple[Any, bool]:
    """A model by its name or place, and whether its weights are new ones."""
    is_repository = isinstance(model, str) and (model.startswith("hf-hub:") or ("/" in model and ":" not in model))
    if not isinstance(model, str) or is_saved(model) or is_repository:
        return load(model, task), False
    return build(model, task, seed=0), True


def text_of(config: Any, task: str, name: str) -> str:
    """The file of a model without the lines at its end."""
    if config.stack == "encoder-decoder" and task not in ("seq2seq-lm", "feature-extraction"):
        raise InputError(f"an encoder-decoder was given for {task}; eject it for seq2seq-lm or feature-extraction")
    refuse_unwritten(config)
    card = describe(config.variant)
    summary = f"{name}, from {card.source}. {card.summary}"
    definitions = with_forms(read_plain(), plain_forms(config))
    return file_of(plain_config(config, task), summary, decoder_changes(config), definitions)


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


def ending(model: ZooPreTrainedModel, differences: dict[str, float]) -> str:
    """The lines that end a file: how exact it is."""
    exact = " and ".join(f"{value:.0e} in {dtype}" for dtype, value in differences.items())
    proved = f"# Proved when written: outputs differ from the zoo's by at most {exact}.\n"
    if model.config.has_quirk("works-on-features"):  # fingerprints are of token ids
        return proved
    logits = ", ".join(f"{value:.4f}" for value in fingerprint(copy.deepcopy(model).float().eval())[:4])
    return f"{proved}# Fingerprint: {logits}, ...\n"
