"""Files of one model for the page: graphs, weights, tokenizers, and their description."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.base.errors import ConfigError, ZooError
from zoo.base.files import read_json
from zoo.base.folders import TOKENIZER_FILE, scratch_folder
from zoo.converters.native.files import TOKENIZER_CONFIG
from zoo.converters.weights import task_of
from zoo.inside.explorer.models import Explored, with_quirks
from zoo.inside.texts import encode
from zoo.models.stack import stacks_of
from zoo.registry import VARIANTS, Task, find_weights, is_weights_name
from zoo.registry.variants import active_quirks
from zoo.training.generation.generating import generation_config, position_limit

from .graphs import NUMBERS, Weights, depth, example, graph_of, inspected, owners, packed, rounded
from .parts import ejected, named_shapes, parts_of
from .tracing import Inspected, kinds_of, output_names

STEPWISE = ("evaluation-sees-the-future", "every-step-is-position-zero")
"""Quirks of decoding token by token: each step sees the past alone, and has position 0."""

AT_ONCE = (STEPWISE[0], "decoder-sees-the-future")
"""Quirks by which a token sees later ones if a whole target is given, and not if it is written with a cache."""

WEIGHTS, ABOUT, FIRST = "weights.bin", "model.json", "first.bin"  # Names of files

LARGEST, BITS = 4_000_000, 5
"""Bytes that a model's weights may take as float16, and the significant bits to which matrices of a larger one are
rounded."""

SHOWN, LONGEST = 8, 48
"""Tokens of every distribution that the first picture shows, and tokens that a model writes at most."""

AS_TRAINED = "as it was trained"
LENGTH = 6


@dataclass(frozen=True)
class Form:
    """One way to compute with a model's weights."""

    quirks: tuple[str, ...]  # Its quirks; the graph of a form that decodes in steps leaves out those of `STEPWISE`
    label: str  # Its name on the page
    description: str = ""  # Its description, empty for the first one
    positions: str = "counted"  # "zero" if every target token has position 0, else "counted"
    target: str = "written"  # "source" if the decoder reads the source, else "written"
    stepwise: bool = True  # Whether it writes token by token; if not, it reads the target that the first form writes

    @property
    def graph_quirks(self) -> tuple[str, ...]:
        is_zero = self.positions == "zero"
        return tuple(quirk for quirk in self.quirks if quirk not in STEPWISE) if is_zero else self.quirks


def forms_of(one: Explored) -> Iterator[Form]:
    """List ways to compute with a model's weights: as it was trained, and with quirks of its original on or off."""
    config = one.model.config
    trained = tuple(config.quirks)
    if not trained:
        yield Form((), AS_TRAINED)
        for quirk, about in VARIANTS.get(config.variant).quirks.items():
            yield form((quirk,), quirk, about.description, one_length=about.one_length)
        return
    yield form(trained, AS_TRAINED, one_length=any(quirk.one_length for quirk in active_quirks(config)))
    if STEPWISE[0] in trained:
        yield Form(
            trained, "the whole target at once", "A forward of a whole target in evaluation mode.", stepwise=False
        )
    yield form((), "without its quirks", "The same weights in the design without the original's defects.")


def form(quirks: tuple[str, ...], label: str, description: str = "", *, one_length: bool = False) -> Form:
    """A form that decodes as the model with these quirks does; with `one_length` the target is the source."""
    if STEPWISE[1] in quirks:
        return Form(quirks, label, description, positions="zero")
    stepwise = not one_length and not any(quirk in AT_ONCE for quirk in quirks)
    return Form(quirks, label, description, target="source" if one_length else "written", stepwise=stepwise)


def obstacle(one: Explored) -> str | None:
    """Why the page cannot show a model, None if it can."""
    if getattr(one.model.config, "masked_next_token", False):
        return f"{one.name} predicts a masked token one position earlier, which the page does not show"
    return None


def write_model(one: Explored, folder: Path) -> dict[str, Any]:
    """Write a model into a new folder, its tokenizers next to that; its entry in the list of models."""
    if (why := obstacle(one)) is not None:
        raise ConfigError(why)
    folder.mkdir(parents=True)
    weights, shapes = Weights(), named_shapes(one)
    written: list[dict[str, Any]] = []
    first: tuple[Tensor, ...] | None = None
    stages: dict[str, list[str]] = {}
    for kind in forms_of(one):
        inside = fitting(one, kind)
        outputs = None if inside is None else run(inside)
        if inside is None or outputs is None:
            continue
        if first is None:
            first = outputs
            stages = {stack: list(seen.stages) for stack, seen in inside.seen.items()}
            write_first(one, kind, inside, folder)
        elif kind.positions == written[0]["positions"] and all(map(torch.equal, first, outputs)):
            continue  # it changes training alone, or inputs that the page has not
        graph = write_named(folder, "graph", "onnx", graph_of(inside, weights, same_length=kind.target == "source"))
        model = with_quirks(one, kind.quirks).model
        source = ejected(model, one.name)
        code = write_named(folder, "code", "bin", zipped(source))
        written.append({**asdict(kind), "graph": graph, "code": code, "parts": parts_of(model, source, shapes)})
    (folder / WEIGHTS).write_bytes(packed(weights.content(), **NUMBERS))
    about = facts(one) | {"stages": stages, "texts": write_tokenizers(one, folder.parent)}
    about |= {"forms": written, "weights": weights.sizes}
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=1), encoding="utf-8")
    entry = {key: about[key] for key in ("name", "variant", "task", "summary")}
    return {**entry, "text": first_text(one), "folder": folder.name}


def write_named(folder: Path, kind: str, ending: str, content: bytes) -> str:
    """Write a file that is named by its content; its name."""
    name = f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}.{ending}"
    (folder / name).write_bytes(content)
    return name


def stored(one: Explored) -> Explored:
    """The model as the page has it: of a large one, matrices are rounded to `BITS` significant bits."""
    if not is_large(one):
        return one
    model = copy.deepcopy(one.model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(rounded(parameter, BITS))
    return replace(one, model=model)


def is_large(one: Explored) -> bool:
    """Whether a model's weights as float16 take more than a page should."""
    return 2 * one.model.num_parameters() > LARGEST


def first_text(one: Explored) -> str:
    if task_of(one.model) == Task.MASKED_LM:
        return f"Where is {one.tokenizers.source.mask_token} house?"
    return "Where is" if task_of(one.model) == Task.CAUSAL_LM else "Where is the house?"


@torch.no_grad()
def write_first(one: Explored, kind: Form, inside: Inspected, folder: Path) -> None:
    """Write what the page shows of its first text until the engine is there: tokens, attention, best tokens."""
    model, config = one.model, one.model.config
    text = first_text(one)
    source = encode(one.tokenizers.source, text, end=not config.is_decoder)
    written: list[int] = []
    outputs = read(inside, kind, source, written)
    if model.can_generate() and kind.target == "written":
        end = end_of(one)
        room = (position_limit(model) or math.inf) - (1 if config.is_encoder_decoder else len(source))
        while len(written) < min(LONGEST, room) and end not in written:
            written.append(int(outputs[0][-1, 0, -1].argmax()))
            if written[-1] != end:
                outputs = read(inside, kind, source, written)
    named = dict(zip(output_names(inside.model), outputs, strict=True))
    content = {
        "text": text,
        "source": source,
        "written": written,
        "logits": shortened(named["logits"]),
        "attention": {kind: numbers(named[f"{kind}_attention"]) for kind in kinds_of(model)},
        "norms": {kind: numbers(named[f"{kind}_norms"]) for kind in kinds_of(model)},
    }
    (folder / FIRST).write_bytes(zipped(content))


def read(inside: Inspected, kind: Form, source: list[int], written: list[int]) -> tuple[Tensor, ...]:
    config = inside.model.config
    rows = [source]
    if config.is_encoder_decoder:
        rows.append(source if kind.target == "source" else [config.decoder_start_token_id or 0, *written])
    else:
        rows[0] = source + written
    tokens: list[Tensor] = []
    for number, row in enumerate(rows):
        ids = torch.tensor([row])
        positions = torch.zeros_like(ids) if number and kind.positions == "zero" else torch.arange(len(row))[None]
        tokens += [ids, torch.ones_like(ids), positions]
    return inside(*tokens, *example(inside.model, (LENGTH, LENGTH))[len(tokens) :])


def shortened(logits: Tensor) -> dict[str, Any]:
    """Log-probabilities of the best tokens of every distribution, and what each of the others has on average."""
    logs = logits.log_softmax(dim=-1).flatten(end_dim=-2)
    best = logs.topk(min(SHOWN, logs.shape[-1]))
    others = (1 - best.values.exp().sum(dim=-1)).clamp_min(1e-9) / max(1, logs.shape[-1] - SHOWN)
    return {
        "dims": list(logits.shape),
        "ids": best.indices.flatten().tolist(),
        "values": [round(value, 4) for value in best.values.flatten().tolist()],
        "rest": [round(value, 4) for value in others.log().tolist()],
    }


def numbers(values: Tensor) -> dict[str, Any]:
    """A tensor in steps of 0.0001, which is what the page shows."""
    return {"dims": list(values.shape), "data": (values * 10_000).round().int().flatten().tolist()}


def fitting(one: Explored, kind: Form) -> Inspected | None:
    """The model in a form, None if its weights do not fit."""
    model = one.model
    if kind.graph_quirks != tuple(model.config.quirks):
        try:
            model = with_quirks(one, kind.graph_quirks).model
        except ZooError:  # or the form has no such part
            return None
    return inspected(model)


def run(inside: Inspected) -> tuple[Tensor, ...] | None:
    """Outputs for an example, None for a form that takes no ids."""
    try:
        with torch.no_grad():
            return inside(*example(inside.model, (LENGTH, LENGTH), padded=True))
    except ZooError:
        return None


def facts(one: Explored) -> dict[str, Any]:
    model = one.model
    config, task = model.config, task_of(model)
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
        "ids": {
            "start": start if start is not None else source.bos_token_id,
            "end": end_of(one),
            "pad": config.pad_token_id,
            "mask": source.mask_token_id,
            "unknown": source.unk_token_id,
        },
        "mask": source.mask_token,
        "labels": [config.id2label[label] for label in sorted(config.id2label)] if not model.can_generate() else [],
        "bits": BITS if is_large(one) else None,
    }


def end_of(one: Explored) -> int | None:
    model = one.model
    return generation_config(model, one.tokenizers.target, {}).eos_token_id if model.can_generate() else None


def write_tokenizers(one: Explored, folder: Path) -> dict[str, str]:
    """Write tokenizers as compressed files; their names for source and target."""
    written: dict[str, str] = {}
    for side, tokenizer in (("source", one.tokenizers.source), ("target", one.tokenizers.target)):
        with scratch_folder() as scratch:
            tokenizer.save_pretrained(scratch)
            files = {"tokenizer": TOKENIZER_FILE, "config": TOKENIZER_CONFIG}
            content = {key: read_json(scratch / name) for key, name in files.items()}
        written[side] = write_named(folder, "texts", "bin", zipped(content))
    return written


def zipped(content: Any) -> bytes:
    """JSON as gzip, which browsers read by themselves."""
    return gzip.compress(json.dumps(content, ensure_ascii=False).encode(), 9, mtime=0)
