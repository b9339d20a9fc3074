"""Files of one model for the page: graphs, weights, tokenizers, and their description."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.base.errors import ZooError
from zoo.base.files import read_json
from zoo.base.folders import scratch_folder
from zoo.converters.native.files import TOKENIZER_CONFIG, TOKENIZER_FILE
from zoo.inside.explorer.models import Explored, with_quirks
from zoo.inside.show import task_of
from zoo.inside.texts import inputs_of
from zoo.registry import VARIANTS, Task, find_weights, is_weights_name
from zoo.training.generation.generating import generation_config, position_limit

from .graphs import Weights, depth, example, graph_of, inspected, owners
from .parts import ejected, parts_of
from .tracing import Inspected, kinds_of, output_names, stacks_of

STEPWISE = ("evaluation-sees-the-future", "every-step-is-position-zero")
"""Quirks of decoding token by token: each step sees the past alone, and has position 0."""

AT_ONCE = (STEPWISE[0], "decoder-sees-the-future")
"""Quirks by which a token sees later ones if a whole target is given, and not if it is written with a cache."""

ONE_LENGTH = ("memory-makes-queries", "decoder-reads-the-source")
"""Quirks with which the target is the source."""

WEIGHTS, ABOUT, CODE, FIRST = "weights.bin", "model.json", "model.py", "first.bin"
"""Names of files."""

FIRST_TEXT = "Where is the house?"
"""The text that the page begins with."""

AS_TRAINED = "as it was trained"
LENGTH = 6


@dataclass(frozen=True)
class Form:
    """One way to compute with a model's weights.

    Attributes:
        quirks: Quirks of the graph.
        label: Its name on the page.
        description: What it does, empty for the first one.
        positions: "zero" if every target token has position 0, else "counted".
        target: "source" if the decoder reads the source, else "written".
        stepwise: Whether it writes token by token; if not, it reads the target that the first form writes.
    """

    quirks: tuple[str, ...]
    label: str
    description: str = ""
    positions: str = "counted"
    target: str = "written"
    stepwise: bool = True


def forms_of(one: Explored) -> Iterator[Form]:
    """List ways to compute with a model's weights: as it was trained, and with quirks of its original on or off."""
    config = one.model.config
    trained = tuple(config.quirks)
    if not trained:
        yield Form((), AS_TRAINED)
        for quirk, about in VARIANTS.get(config.variant).quirks.items():
            yield form((quirk,), quirk, about.description)
        return
    yield form(trained, AS_TRAINED)
    if STEPWISE[0] in trained:
        yield Form(
            trained, "the whole target at once", "A forward of a whole target in evaluation mode.", stepwise=False
        )
    yield form((), "without its quirks", "The same weights in the design without the original's defects.")


def form(quirks: tuple[str, ...], label: str, description: str = "") -> Form:
    """A form that decodes as the model with these quirks does."""
    if STEPWISE[1] in quirks:
        return Form(tuple(quirk for quirk in quirks if quirk not in STEPWISE), label, description, positions="zero")
    one_length = any(quirk in ONE_LENGTH for quirk in quirks)
    stepwise = not one_length and not any(quirk in AT_ONCE for quirk in quirks)
    return Form(quirks, label, description, target="source" if one_length else "written", stepwise=stepwise)


def write_model(one: Explored, folder: Path, *, is_first: bool = False) -> dict[str, Any]:
    """Write the files of a model.

    Args:
        one: The model and its tokenizers.
        folder: Where they go; it is made.
        is_first: Whether it is the one that the page begins with.

    Returns:
        The entry in the list of models.

    Raises:
        ExportError: If a part cannot be written as a graph.
    """
    folder.mkdir(parents=True)
    weights = Weights()
    written: list[dict[str, Any]] = []
    first: tuple[Tensor, ...] | None = None
    for kind in forms_of(one):
        inside = fitting(one, kind)
        outputs = None if inside is None else run(inside)
        if inside is None or outputs is None:
            continue
        if first is not None and kind.positions == written[0]["positions"] and same(first, outputs):
            continue  # it changes training alone, or inputs that the page has not
        first = outputs if first is None else first
        graph = graph_of(inside, weights, same_length=kind.target == "source")
        file = f"graph-{hashlib.sha256(graph).hexdigest()[:12]}.onnx"
        (folder / file).write_bytes(graph)
        written.append({**asdict(kind), "graph": file})
    (folder / WEIGHTS).write_bytes(gzip.compress(weights.content(), 9, mtime=0))
    code = ejected(one.model, one.name)
    (folder / CODE).write_text(code, encoding="utf-8")
    write_tokenizers(one, folder)
    has_first = is_first and write_first(one, folder)
    about = {**facts(one), "first": has_first, "forms": written, "weights": weights.sizes, "parts": parts_of(one, code)}
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=1), encoding="utf-8")
    return {key: about[key] for key in ("name", "variant", "task", "summary")} | {"folder": folder.name}


def write_first(one: Explored, folder: Path) -> bool:
    """Write all outputs for a text, which the page shows until the engine is there.

    Returns:
        Whether they were written: not of a model that continues the text.
    """
    model = one.model
    if STEPWISE[1] in model.config.quirks or (model.can_generate() and not model.config.is_encoder_decoder):
        return False
    text = f"Where is {one.tokenizers.source.mask_token} house?" if task_of(model) == Task.MASKED_LM else FIRST_TEXT
    inputs = inputs_of(model, one.tokenizers, [text])
    inside = inspected(model)
    ids = [tensor for name, tensor in inputs.arguments.items() if name.endswith("input_ids")]
    tokens = [tensor for one in ids for tensor in (one, torch.ones_like(one), torch.arange(one.shape[1])[None])]
    with torch.no_grad():
        outputs = inside(*tokens, *example(inside.model, (LENGTH, LENGTH))[len(tokens) :])
    tensors = {
        name: {"dims": list(values.shape), "data": base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()}
        for name, values in zip(output_names(inside.model), outputs, strict=True)
    }
    written = [label for label in inputs.labels[0].tolist() if label >= 0] if model.can_generate() else []
    content = {"text": text, "source": ids[0][0].tolist(), "written": written, "outputs": tensors}
    (folder / FIRST).write_bytes(gzip.compress(json.dumps(content).encode(), 9, mtime=0))
    return True


def fitting(one: Explored, kind: Form) -> Inspected | None:
    """The model in a form, None if its weights do not fit."""
    if kind.quirks == tuple(one.model.config.quirks):
        return inspected(one.model)
    try:
        other = with_quirks(one, kind.quirks).model
    except (ZooError, RuntimeError):  # the form has no such part, or tensors of other shapes
        return None
    return inspected(other) if set(other.state_dict()) <= set(one.model.state_dict()) else None


def run(inside: Inspected) -> tuple[Tensor, ...] | None:
    """Outputs for an example, None for a form that takes no ids."""
    try:
        with torch.no_grad():
            return inside(*example(inside.model, (LENGTH, LENGTH), padded=True))
    except ZooError:
        return None


def same(some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    """Whether all tensors are equal."""
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def facts(one: Explored) -> dict[str, Any]:
    """What the page has to know of a model."""
    model = one.model
    config, task = model.config, task_of(model)
    settings = generation_config(model, one.tokenizers.target, {}) if model.can_generate() else None
    source = one.tokenizers.source
    start = config.decoder_start_token_id if config.is_encoder_decoder else None
    return {
        "name": one.name,
        "variant": config.variant,
        "quirks": list(config.quirks),
        "task": str(Task(task).value),
        "summary": find_weights(one.name).summary if is_weights_name(one.name) else f"{config.variant} for {task}.",
        "parameters": model.num_parameters(),
        "limit": position_limit(model),
        "stacks": {name: depth(stack) for name, stack in stacks_of(model).items()},
        "heads": {
            kind: [depth(stack), stack.config.num_attention_heads]
            for kind, stack in zip(kinds_of(model), owners(model), strict=True)
        },
        "stages": stage_names(model),
        "ids": {
            "start": start if start is not None else source.bos_token_id,
            "end": None if settings is None else settings.eos_token_id,
            "pad": config.pad_token_id,
            "mask": source.mask_token_id,
            "unknown": source.unk_token_id,
        },
        "mask": source.mask_token,
        "labels": [config.id2label[label] for label in sorted(config.id2label)] if settings is None else [],
        "one_tokenizer": one.tokenizers.target is source,
    }


def stage_names(model: Any) -> dict[str, list[str]]:
    """Names of the places at which the page compares the residual stream."""
    inside = inspected(model)
    run(inside)
    return {stack: list(seen.stages) for stack, seen in inside.seen.items()}


def write_tokenizers(one: Explored, folder: Path) -> None:
    """Write the tokenizers, as one compressed file each."""
    sides = {"source": one.tokenizers.source, "target": one.tokenizers.target}
    for side, tokenizer in sides.items():
        if side == "target" and tokenizer is one.tokenizers.source:
            continue
        with scratch_folder() as scratch:
            tokenizer.save_pretrained(scratch)
            files = {"tokenizer": TOKENIZER_FILE, "config": TOKENIZER_CONFIG}
            content = {key: read_json(scratch / name) for key, name in files.items()}
        written = json.dumps(content, ensure_ascii=False).encode()
        (folder / f"{side}.bin").write_bytes(gzip.compress(written, 9, mtime=0))
