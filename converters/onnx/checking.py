"""Compares what graphs compute in an engine with what the model does that they were made of."""

from __future__ import annotations

from pathlib import Path

from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from .. import fresh
from ..samples import flat, neutral_generation, sample_inputs
from ..verification import Difference, judge
from ..weights import task_of
from .models import GraphModel
from .running import load_onnx
from .writing import traceable


def check_onnx(model: ZooPreTrainedModel, folder: Path, seed: int = 0) -> Difference:
    """Load an export, and compare it with the original in float32."""
    return compare(model, load_onnx(folder), seed=seed)


def compare(model: ZooPreTrainedModel, graphs: GraphModel, *, exact: bool = True, seed: int = 0) -> Difference:
    """Compare graphs with the model that they were made of, in float32.

    Args:
        model: The original.
        graphs: Its graphs in an engine.
        exact: Whether they have to be equal but for rounding.
        seed: Of the inputs.

    Raises:
        VerificationError: When they have to, and are not.
    """
    batches = sample_inputs(model, seed)
    task = task_of(model)
    request = {
        "output": "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits",
        "batches": {batch: list(given) for batch, given in batches.items()},
        "generate": neutral_generation(model.config),
    }
    inputs = flat(batches)
    ours = fresh.compute(traceable(model), request, inputs)
    theirs = fresh.compute(graphs, request, inputs)
    return judge({"float32": ours}, {"float32": theirs}, batches, task, exact=exact)
