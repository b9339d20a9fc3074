"""Writes a model as ONNX graphs."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path

import torch

from zoo.models import ZooPreTrainedModel

from ..errors import ExportError, require
from ..weights import save_generation, traceable
from .files import GRAPH_ENDING
from .graphs import Graph, graphs_of

LARGEST_IN_ONE_FILE = 1_500_000_000
"""Bytes of weights that stay in a graph's own file, which Protocol Buffers limit to 2 GB."""


def write_onnx(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write configuration and graphs."""
    require("onnx", "onnx", "onnxscript", "onnxruntime")
    write_graphs(model, folder)
    write_settings(model, folder)


def write_graphs(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write graphs. Arguments and errors as for [`write_onnx`][]."""
    for graph in graphs_of(traceable(model)):
        write_graph(graph, folder, model.config.variant)


def write_settings(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write the configuration by which graphs are a model again, and how it generates."""
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    if model.can_generate():
        save_generation(model, folder)


def write_graph(graph: Graph, folder: Path, variant: str) -> None:
    """Trace and write one graph."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # It reports that torchvision is not installed, which no graph of ours needs.
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
    program.save(str(folder / f"{graph.name}{GRAPH_ENDING}"), external_data=size > LARGEST_IN_ONE_FILE)
