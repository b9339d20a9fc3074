"""`zoo.eject`: any model as one readable file that computes the same; and the differences of two such files."""

from __future__ import annotations

import copy
import difflib
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from .plugins import plain_forms, with_forms
from .program import read_plain
from .proof import prove
from .settings import decoder_changes, plain_config, refuse_unwritten
from .writing import file_of

if TYPE_CHECKING:
    from zoo.building.literals import TaskName, VariantName, WeightsName

SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "layer_norm_eps"),
)
"""Settings that are not what two variants differ in."""


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


def ending(model: ZooPreTrainedModel, differences: dict[str, float]) -> str:
    """The lines that end a file: how exact it is."""
    exact = " and ".join(f"{value:.0e} in {dtype}" for dtype, value in differences.items())
    proved = f"# Proved when written: outputs differ from the zoo's by at most {exact}.\n"
    if model.config.has_quirk("works-on-features"):  # fingerprints are of token ids
        return proved
    logits = ", ".join(f"{value:.4f}" for value in fingerprint(copy.deepcopy(model).float().eval())[:4])
    return f"{proved}# Fingerprint: {logits}, ...\n"
