"""Compares an exported model, loaded in a process that knows no zoo, with the model that it was made of."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from . import fresh
from .errors import VerificationError
from .samples import BEAMS, flat, neutral_generation, sample_inputs
from .weights import model_with, task_of, traceable, weights_of

LARGEST_IN_DOUBLE = 500_000_000
"""Up to how many parameters a model is compared in float64 as well."""

EXACT = 2e-5
"""What may remain in float64, beside the largest output: many classes compute norms and rotations in float32 there."""

ROUNDING = 2e-5
"""What may remain in float32, beside the largest output; or else [`NOISE`][] times the model's own rounding error."""

NOISE = 30
"""How much more than the model's own distance from float64 rounding may make of it."""


@dataclass(frozen=True)
class Perplexities:
    """What rounded weights cost, on a text that the original wrote by its own probabilities.

    Args:
        original: The original's perplexity.
        rounded: The export's.
        tokens: How many tokens that is the mean over.
    """

    original: float
    rounded: float
    tokens: int


@dataclass(frozen=True)
class Difference:
    """How far an exported model is from the original.

    Args:
        float32: Largest difference of outputs in float32.
        float64: The same in float64, None where it was not measured.
        largest: The largest output, for comparison.
        batches: How many batches were compared.
        greedy: Whether greedy decoding gave the same tokens, None where nothing can be generated.
        beams: The same of beam search.
        perplexities: What rounding weights cost, None where that was not measured.
    """

    float32: float
    float64: float | None
    largest: float
    batches: int
    greedy: bool | None
    beams: bool | None = None
    perplexities: Perplexities | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)


def real(
    outputs: dict[str, Tensor], batches: dict[str, dict[str, Tensor]], width: int, of_tokens: bool
) -> dict[str, Tensor]:
    """Outputs where there are real tokens, and of ids that the original has."""
    kept = {}
    for name, tensor in outputs.items():
        batch = batches[name.partition(".")[0]]
        if name.endswith(".output"):
            tensor = tensor[..., :width]
            if of_tokens and "attention_mask" in batch and "decoder_input_ids" not in batch:
                tensor = tensor * batch["attention_mask"][..., None]
        kept[name] = tensor
    return kept


def verify(
    model: ZooPreTrainedModel,
    folder: Path,
    class_name: str,
    output: str,
    *,
    trust_remote_code: bool = False,
    in_process: bool = False,
    in_double: bool = True,
    seed: int = 0,
) -> Difference:
    """Load an exported model and compare it with the original.

    Args:
        model: The original.
        folder: The export.
        class_name: The Auto class, or class, of transformers to load it with.
        output: Where it returns what the original does: "logits", "last_hidden_state" or "hidden_states[-2]".
        trust_remote_code: Whether the folder brings its own code.
        in_process: Whether to load it in this process: quicker, but what the zoo has registered is there.
        in_double: Whether to compare in float64 as well, if the model is not too large.
        seed: Of the inputs.

    Raises:
        VerificationError: When it is too large, or the export cannot be loaded.
    """
    batches, inputs, asked = questions(model, seed)
    dtypes = ["float32", "float64"] if in_double and model.num_parameters() <= LARGEST_IN_DOUBLE else ["float32"]
    named = {"folder": str(folder), "class_name": class_name, "trust_remote_code": trust_remote_code}
    request = {**asked, **named, "output": output, "dtypes": dtypes}
    if in_process:
        theirs = {dtype: fresh.compute(fresh.load(request, dtype), request, inputs) for dtype in dtypes}
    else:
        failed = "the exported model cannot be loaded and run without the zoo"
        found = run_alone(request, inputs, failed, HF_HUB_OFFLINE="1")
        theirs = {dtype: below(found, dtype) for dtype in dtypes}
    ours = {dtype: fresh.compute(in_dtype(model, getattr(torch, dtype)), asked, inputs) for dtype in dtypes}
    return judge(ours, theirs, batches, task_of(model))


def compare(model: ZooPreTrainedModel, engine: PreTrainedModel, *, exact: bool = True, seed: int = 0) -> Difference:
    """Compare an export in an engine, which has the interface of a model of transformers, in float32.

    Args:
        model: The original.
        engine: The export.
        exact: Whether they have to be equal but for rounding.
        seed: Of the inputs.

    Raises:
        VerificationError: When they have to, and are not.
    """
    batches, inputs, asked = questions(model, seed)
    ours, theirs = (fresh.compute(one, asked, inputs) for one in (traceable(model), engine))
    return judge({"float32": ours}, {"float32": theirs}, batches, task_of(model), exact=exact)


def questions(
    model: ZooPreTrainedModel, seed: int
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Tensor], dict[str, Any]]:
    """Batches to compare on, the same under one name each, and what `fresh.compute` is asked of them."""
    batches = sample_inputs(model, seed)
    asked = {
        "output": "last_hidden_state" if task_of(model) == Task.FEATURE_EXTRACTION else "logits",
        "generate": neutral_generation(model.config),
        "batches": {batch: list(given) for batch, given in batches.items()},
    }
    return batches, flat(batches), asked


def in_dtype(model: ZooPreTrainedModel, dtype: torch.dtype) -> ZooPreTrainedModel:
    """The same model in another type, with buffers computed anew: casting them would keep what they have lost."""
    weights = {name: value.to("cpu", dtype, copy=True) for name, value in weights_of(model).items()}
    return model_with(copy.deepcopy(model.config), task_of(model), weights)


def below(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Tensors of which the names begin with another, without it."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}


def run_alone(request: dict[str, Any], inputs: dict[str, Tensor], failed: str, **environment: str) -> dict[str, Tensor]:
    """Let a process that cannot import the zoo compute.

    Args:
        request: Of [`fresh`][]: `calls` for OpenVINO, `class_name` and others for transformers.
        inputs: Tensors by name.
        failed: How an error begins where it cannot.
        environment: Further variables.

    Raises:
        VerificationError: When it cannot.
    """
    with scratch_folder() as place:
        save_file({name: tensor.contiguous().clone() for name, tensor in inputs.items()}, place / "inputs")
        request = {**request, "inputs": str(place / "inputs"), "results": str(place / "results")}
        (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
        environment = {**os.environ, "HF_MODULES_CACHE": str(place / "modules"), **environment}
        command = [sys.executable, "-I", fresh.__file__, str(place / "request.json")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise VerificationError(f"{failed}: {last}")
        return load_file(place / "results")


def explained(difference: float, scale: float, noise: Callable[[], float], tolerance: float = ROUNDING) -> float:
    """How large a difference rounding explains.

    Args:
        difference: The one that was measured: the original's own distance from float64 is asked for only beyond the
            first tolerance.
        scale: The largest output.
        noise: The original's distance from itself in float64.
        tolerance: Beside the largest output; infinite for rounded weights.
    """
    allowed = tolerance * max(1.0, scale)
    return allowed if difference <= allowed else max(allowed, NOISE * noise())


def judge(
    ours: dict[str, dict[str, Tensor]],
    theirs: dict[str, dict[str, Tensor]],
    batches: dict[str, dict[str, Tensor]],
    task: str,
    *,
    exact: bool = True,
) -> Difference:
    """Measure the difference, and refuse one that is not rounding.

    Args:
        ours: What the original computes, by dtype.
        theirs: What the export computes, by dtype.
        batches: Their inputs.
        task: What the original is for: what is said of a sequence counts whole, and of tokens where they are real.
        exact: Whether they have to be equal; where weights were rounded, outputs only have to be numbers.

    Raises:
        VerificationError: When it is too large.
    """
    width = min(tensor.shape[-1] for name, tensor in ours["float32"].items() if name.endswith(".output"))
    of_tokens = task != Task.SEQUENCE_CLASSIFICATION
    kept_ours = {dtype: real(outputs, batches, width, of_tokens) for dtype, outputs in ours.items()}
    kept_theirs = {dtype: real(outputs, batches, width, of_tokens) for dtype, outputs in theirs.items()}
    names = [name for name in ours["float32"] if name.endswith(".output")]
    for name in names:
        if kept_ours["float32"][name].shape != kept_theirs["float32"][name].shape:
            raise VerificationError(f"the exported model's {name} has another shape than the original's")
    largest = max(float(kept_ours["float32"][name].abs().max()) for name in names)
    scale = max(1.0, largest)
    float32 = distance(kept_ours["float32"], kept_theirs["float32"], names)
    float64, noise = None, 0.0
    if "float64" in ours:
        finite = [name for name in names if theirs["float64"][name].isfinite().all()]
        # In float64, transformers' eager attention makes NaN of queries that see no key: it takes the softmax in
        # float32, where the mask's least number is -inf. What such a batch gives is measured in float32 alone.
        float64 = distance(kept_ours["float64"], kept_theirs["float64"], finite) if finite else None
        noise = distance(kept_ours["float32"], kept_ours["float64"], names)
    allowed = explained(float32, largest, lambda: noise) if exact else sys.float_info.max
    if not (float32 <= allowed and (float64 is None or float64 <= EXACT * scale)):
        raise VerificationError(
            f"the exported model differs by {float32:.2g} in float32 (allowed {allowed:.2g}) and "
            f"{float64 if float64 is None else format(float64, '.2g')} in float64 (allowed {EXACT * scale:.2g})"
        )
    same: dict[str, bool] = {}
    for batch, how in (("generate_greedy", "greedily"), ("generate_beams", "with 4 beams")):
        if (name := f"{batch}.tokens") in ours["float32"]:
            same[batch] = any(torch.equal(ours[dtype][name], theirs[dtype][name]) for dtype in ours)
            if exact and not same[batch]:
                raise VerificationError(f"the exported model decodes other tokens than the original {how}")
    greedy, beams = (same.get(batch) for batch in BEAMS)
    return Difference(float32, float64, largest, len(names), greedy, beams)


def distance(first: dict[str, Tensor], second: dict[str, Tensor], names: list[str]) -> float:
    """Largest difference between outputs."""
    worst = max(float((first[name].double() - second[name].double()).abs().max()) for name in names)
    return float("inf") if worst != worst else worst
