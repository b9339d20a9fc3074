"""Writes a model as ONNX graphs, and compares what ONNX Runtime computes with what the model does."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path

import torch

from zoo.models import ATTENTIONS, ZooPreTrainedModel
from zoo.registry import Task

from .. import fresh
from ..errors import ExportError
from ..extras import require
from ..samples import flat, neutral_generation, sample_inputs
from ..verification import Difference, judge
from ..weights import model_with, save_generation, task_of, weights_of
from .graphs import Graph, graphs_of
from .models import GraphModel
from .running import load_onnx

LARGEST_IN_ONE_FILE = 1_500_000_000
"""Bytes of weights that stay in a graph's own file, which Protocol Buffers limit to 2 GB."""


def obstacles(model: ZooPreTrainedModel) -> tuple[str, ...]:
    """Say what graphs cannot hold, of what is known without tracing.

    Args:
        model: Any model of the zoo.

    Returns:
        A phrase each.
    """
    attention = model.config.attention
    if model.can_generate() and not ATTENTIONS.get(attention).caches_heads:
        return (
            f"attention={attention!r} caches no keys and values of every layer's heads, which are what graphs take",
        )
    if model.config.mixer_layer_type is not None:
        return (f"mixer={model.config.mixer!r} keeps a state, and graphs take keys and values of heads",)
    return ()


def write_onnx(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write configuration and graphs.

    Args:
        model: A model of the zoo that graphs can hold.
        folder: An empty folder.

    Raises:
        MissingExtraError: When the extra is not installed.
        ExportError: When the model cannot be traced.
    """
    require("onnx", "onnx", "onnxscript", "onnxruntime")
    write_graphs(model, folder)
    write_settings(model, folder)


def write_graphs(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write graphs. Arguments and errors as for [`write_onnx`][]."""
    for graph in graphs_of(traceable(model)):
        write_graph(graph, folder, model.config.variant)


def write_settings(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write the configuration by which graphs are a model again, and how it generates.

    Args:
        model: The model that was exported.
        folder: Where the graphs are.
    """
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    if model.can_generate():
        save_generation(model, folder)


def traceable(model: ZooPreTrainedModel) -> ZooPreTrainedModel:
    """The same model in float32 on eager attention, whose operators every runtime has.

    Returns:
        A model that shares the weights where they are float32 already.
    """
    weights = {name: value.to("cpu", torch.float32) for name, value in weights_of(model).items()}
    traced = model_with(copy.deepcopy(model.config), task_of(model), weights)
    traced.set_attn_implementation("eager")
    return traced.eval()


def write_graph(graph: Graph, folder: Path, variant: str) -> None:
    """Trace and write one graph.

    Args:
        graph: The graph.
        folder: Where to.
        variant: The variant's name, for the message.

    Raises:
        ExportError: When it cannot be traced.
    """
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # Which tells that torchvision, which no graph of ours needs, is not installed.
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            program = torch.onnx.export(
                graph.module,
                graph.inputs,
                input_names=list(graph.input_names),
                output_names=list(graph.output_names),
                dynamic_shapes=graph.axes,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:
        # Whatever tracing a variant's code may raise: the export is refused with the reason.
        cause = error.__cause__ or error
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        raise ExportError(f"{graph.name} of variant {variant!r} cannot be traced for onnx: {reason}") from error
    if program is None:
        raise ExportError(f"{graph.name} of variant {variant!r} cannot be traced for onnx")
    size = sum(parameter.numel() * 4 for parameter in graph.module.parameters())
    program.save(str(folder / f"{graph.name}.onnx"), external_data=size > LARGEST_IN_ONE_FILE)


def check_onnx(model: ZooPreTrainedModel, folder: Path, seed: int = 0) -> Difference:
    """Load an export, and compare it with the original in float32.

    Raises:
        VerificationError: When it is too large.
    """
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
    request = {
        "output": "last_hidden_state" if task_of(model) == Task.FEATURE_EXTRACTION else "logits",
        "batches": {batch: list(given) for batch, given in batches.items()},
        "generate": neutral_generation(model.config),
    }
    inputs = flat(batches)
    ours = fresh.compute(traceable(model), request, inputs)
    return judge({"float32": ours}, {"float32": fresh.compute(graphs, request, inputs)}, batches, exact=exact)
