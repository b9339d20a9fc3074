"""Prepacked weights: MKL's layout of linear layers for the few rows of a decode step, on a CPU.

Every decode step multiplies matrices by one to some dozens of rows. MKL takes two to five times as long with weights in
plain layout as with weights prepacked for that number of rows.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from .graph_capture import CapturedGraph, Program, compile_graph, copy_graph
from .matmul import Trial, compare

PAYS = 1.25
"""Speedup from which weights are prepacked. Prepacking takes as long as running the layer ten to twenty times; at this
speedup a hundred steps make up for it."""

SHARE = 1 / 8
"""Share of the machine's memory that prepacked weights may take."""

LARGEST = 1 << 23
"""Largest number of weights for which layers are measured; larger ones behave alike."""

SAMPLES = 16
"""Number of values of a weight compared in every step, because PyTorch does not count writes through `.data`."""


@dataclass(frozen=True)
class JointLinear:
    """Linear layers of a captured graph with the same input, merged."""

    nodes: tuple[fx.Node, ...]
    weights: tuple[int, ...]  # Their weights among the graph's constants
    biases: tuple[int, ...]  # Their biases; none, or as many
    rows: int

    def widths(self, constants: Sequence[Tensor]) -> tuple[int, ...]:
        """Number of outputs of each layer."""
        return tuple(constants[place].shape[0] for place in self.weights)

    def prepack(self, constants: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Prepack the weights."""
        weights = torch.cat([constants[place].detach() for place in self.weights])
        prepacked = torch.ops.mkl._mkl_reorder_linear_weight(weights, self.rows)
        biases = [constants[place].detach() for place in self.biases]
        return (prepacked, weights.new_empty(1).expand_as(weights), *([torch.cat(biases)] if biases else []))


@dataclass(frozen=True)
class Prepacking:
    """A captured graph with linear layers on prepacked weights."""

    program: Program  # Takes all inputs, all constants of the graph, then the prepacked weights
    layers: tuple[JointLinear, ...]  # Layers on prepacked weights

    def prepack(self, constants: Sequence[Tensor]) -> PrepackedWeights:
        """Prepack the present weights."""
        tensors = tuple(tensor for layer in self.layers for tensor in layer.prepack(constants))
        places = dict.fromkeys(place for layer in self.layers for place in (*layer.weights, *layer.biases))
        return PrepackedWeights(self.program, tensors, tuple(constants[place] for place in places))


class PrepackedWeights:
    """Prepacked copies of weights, with their sources.

    Args:
        program: Takes all inputs and all constants of the graph, then the tensors.
    """

    def __init__(self, program: Program, tensors: tuple[Tensor, ...], sources: tuple[Tensor, ...]) -> None:
        self.program = program
        self.tensors = tensors
        self._sources = sources
        self._samples = [sample(source) for source in sources]
        self._versions = self._current_versions()
        self._values = torch.cat(self._samples)

    def _current_versions(self) -> list[tuple[int, int]]:
        return [(source.data_ptr(), source._version) for source in self._sources]

    def is_current(self) -> bool:
        """Whether version counters, addresses and sampled values, which show writes through `.data`, are unchanged."""
        return self._current_versions() == self._versions and torch.equal(torch.cat(self._samples), self._values)


def sample(tensor: Tensor) -> Tensor:
    """A view of at most SAMPLES values, evenly spread over a tensor."""
    size = min(SAMPLES, tensor.numel())
    return tensor.detach().as_strided((size,), (max(1, (tensor.numel() - 1) // SAMPLES),))


def prepacking_of(capture: CapturedGraph, *, everywhere: bool = False) -> Prepacking | None:
    """Find the linear layers that are faster with prepacked weights, by measuring each size."""
    if not can_prepack():
        return None
    constants = capture.constants
    graph = copy_graph(capture.graph)
    layers = [layer for layer in joint_layers(graph, constants) if everywhere or try_prepacked(layer, constants).pays]
    size = sum(constants[place].nbytes for layer in layers for place in layer.weights)
    memory = memory_of_machine()
    if not layers or (memory is not None and size > SHARE * memory):
        return None
    for layer in layers:
        replace(graph, layer, constants)
    return Prepacking(compile_graph(graph), tuple(layers))


def joint_layers(graph: fx.Graph, constants: Sequence[Any]) -> list[JointLinear]:
    """Find the float32 linear layers of a graph with a known number of rows and tracked weights, merged by input."""
    inputs = graph.find_nodes(op="placeholder")
    places = {node: place for place, node in enumerate(inputs[len(inputs) - len(constants) :])}
    groups: dict[Any, list[tuple[fx.Node, Any, Any]]] = {}
    for node in graph.find_nodes(op="call_function", target=F.linear):
        states, weight, bias = (*node.args, *node.kwargs.values(), None)[:3]
        *rows, _ = states.meta["val"].shape
        tensors = [constants[places[one]] for one in (weight, bias) if one in places]
        is_constant = len(tensors) == 1 + (bias is not None)
        if is_constant and all(map(can_be_watched, tensors)) and all(type(size) is int for size in rows):
            groups.setdefault((states, math.prod(rows), bias is None), []).append((node, weight, bias))
    return [
        JointLinear(
            tuple(node for node, _, _ in group),
            tuple(places[weight] for _, weight, _ in group),
            () if has_no_bias else tuple(places[bias] for _, _, bias in group),
            rows,
        )
        for (_, rows, has_no_bias), group in groups.items()
    ]


def can_be_watched(tensor: Tensor) -> bool:
    """Whether a weight is float32, and PyTorch counts writes to it."""
    return tensor.dtype == torch.float32 and not tensor.is_inference()


def replace(graph: fx.Graph, layer: JointLinear, constants: Sequence[Tensor]) -> None:
    """Replace linear layers by prepacked ones.

    Args:
        graph: Changed in place; the results of `prepack` become its last inputs.
    """
    inputs = graph.find_nodes(op="placeholder")
    for place in range(len(inputs), len(inputs) + (3 if layer.biases else 2)):
        with graph.inserting_after(inputs[-1]):
            inputs.append(graph.placeholder(f"prepacked_{place}"))
    packed, shape, bias = inputs[-3:] if layer.biases else (*inputs[-2:], None)
    first = layer.nodes[0]
    with graph.inserting_before(first):
        joint = graph.call_function(prepacked_linear, (first.args[0], packed, shape, bias, layer.rows))
        widths = list(layer.widths(constants))
        parts = [joint]
        if len(widths) > 1:
            split = graph.call_function(torch.split, (joint, widths, -1))
            parts = [graph.call_function(operator.getitem, (split, place)) for place in range(len(widths))]
    for node, part in zip(layer.nodes, parts, strict=True):
        node.replace_all_uses_with(part)
        graph.erase_node(node)


def prepacked_linear(states: Tensor, prepacked: Tensor, shape: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Multiply by prepacked weights: (..., in_features) -> (..., out_features).

    Args:
        rows: Number of rows for which the weights were prepacked.
    """
    return torch.ops.mkl._mkl_linear(states, prepacked, shape, bias, rows)


def can_prepack() -> bool:
    """Whether this build of PyTorch prepacks weights."""
    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def try_rows(rows: int, width: int = 1024) -> Trial | None:
    """Measure a layer from this width to four times that with a number of rows, once in a process."""
    return _try_prepacked(rows, (4 * width,), width, torch.get_num_threads()) if can_prepack() else None


def try_prepacked(layer: JointLinear, constants: Sequence[Tensor]) -> Trial:
    """Measure linear layers of about one size, once in a process."""
    widths, in_features = layer.widths(constants), constants[layer.weights[0]].shape[1]
    largest = max(1, LARGEST // (in_features * len(widths)))
    return _try_prepacked(
        layer.rows, tuple(min(width, largest) for width in widths), in_features, torch.get_num_threads()
    )


@cache
def _try_prepacked(rows: int, widths: tuple[int, ...], in_features: int, threads: int) -> Trial:
    generator = torch.Generator().manual_seed(0)
    states, weights = (torch.randn(size, in_features, generator=generator) for size in (rows, sum(widths)))
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weights, rows)
    separate = weights.split(list(widths))
    return compare(
        lambda: [F.linear(states, weight) for weight in separate],
        lambda: prepacked_linear(states, packed, weights, None, rows),
        states.double() @ weights.double().T,
        PAYS,
    )


def memory_of_machine() -> int | None:
    """Memory of the machine in bytes, None if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
