"""Prepacked weights: MKL lays those of linear layers out for the few rows of a decode step, on a CPU.

A matrix is multiplied by one to some dozens of rows in every decode step. MKL then takes two to five times as long as
it needs where it has to make do with the weights as they lie; it can prepack them once for a number of rows.
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
"""How many times as fast a linear layer has to be for its weights to be prepacked. That takes as long as ten to twenty
times the layer; at this gain a hundred steps make up for it."""

SHARE = 1 / 8
"""The share of the machine's memory that prepacked weights may take."""

LARGEST = 1 << 23
"""Size of the weights up to which layers are tried; larger ones behave alike."""

SAMPLES = 16
"""How many values of a weight are compared in every step. PyTorch does not count what is written through `.data`."""


@dataclass(frozen=True)
class JointLinear:
    """Linear layers of a captured graph that read the same input, as one.

    Attributes:
        nodes: Their nodes in the graph.
        weights: Which of the graph's constants they multiply by.
        biases: Which they add; none, or as many.
        rows: How many rows the input has.
    """

    nodes: tuple[fx.Node, ...]
    weights: tuple[int, ...]
    biases: tuple[int, ...]
    rows: int

    def widths(self, constants: Sequence[Tensor]) -> tuple[int, ...]:
        """How many outputs each of the layers has."""
        return tuple(constants[place].shape[0] for place in self.weights)

    def prepack(self, constants: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Lay the weights out.

        Returns:
            The weights as MKL wants them, a tensor that tells their shape and takes no memory, and the bias if there
            is one.
        """
        weights = torch.cat([constants[place].detach() for place in self.weights])
        prepacked = torch.ops.mkl._mkl_reorder_linear_weight(weights, self.rows)
        biases = [constants[place].detach() for place in self.biases]
        return (prepacked, weights.new_empty(1).expand_as(weights), *([torch.cat(biases)] if biases else []))


@dataclass(frozen=True)
class Prepacking:
    """A captured graph whose linear layers read prepacked weights, and which they are.

    Attributes:
        program: Takes all inputs, all constants of the graph, then what the layers prepack.
        layers: The layers that do.
    """

    program: Program
    layers: tuple[JointLinear, ...]

    def prepack(self, constants: Sequence[Tensor]) -> PrepackedWeights:
        """Prepack weights as they are now."""
        tensors = tuple(tensor for layer in self.layers for tensor in layer.prepack(constants))
        places = dict.fromkeys(place for layer in self.layers for place in (*layer.weights, *layer.biases))
        return PrepackedWeights(self.program, tensors, tuple(constants[place] for place in places))


class PrepackedWeights:
    """A copy of weights, as MKL reads them fastest, and what it is a copy of.

    Args:
        program: Takes all inputs and all constants of the graph, then the tensors.
        sources: The weights and biases themselves.
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
        """Whether nobody has written to the weights since.

        Returns:
            False after a write that PyTorch counts, after other memory was put under a weight, and after a write
            through `.data` that changes any of the sampled values, as one to a whole weight does.
        """
        return self._current_versions() == self._versions and torch.equal(torch.cat(self._samples), self._values)


def sample(tensor: Tensor) -> Tensor:
    """Look at a few values of a tensor, spread over all of it.

    Returns:
        A view. *Shape:* (at most SAMPLES,)
    """
    size = min(SAMPLES, tensor.numel())
    return tensor.detach().as_strided((size,), (max(1, (tensor.numel() - 1) // SAMPLES),))


def prepacking_of(capture: CapturedGraph, *, everywhere: bool = False) -> Prepacking | None:
    """Find the linear layers that prepacked weights make faster, by a trial of each size.

    Args:
        everywhere: Whether to take them all, without a trial.

    Returns:
        None if there are none, or no memory for them.
    """
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
    """Find the float32 linear layers of a graph whose number of rows is known, and whose weights can be watched.

    Returns:
        All of them, those with the same input as one.
    """
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
    """Whether a weight is in float32, and PyTorch counts what is written to it."""
    return tensor.dtype == torch.float32 and not tensor.is_inference()


def replace(graph: fx.Graph, layer: JointLinear, constants: Sequence[Tensor]) -> None:
    """Let linear layers read prepacked weights.

    Args:
        graph: Changed in place; what `prepack` returns become its last inputs.
        layer: Layers of this graph.
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
    """Multiply by prepacked weights.

    Args:
        states: As many rows as they were prepacked for. *Shape:* (..., in_features)
        shape: Tells their size. *Shape:* (out_features, in_features)
        bias: *Shape:* (out_features,)
        rows: For how many rows they were prepacked.

    Returns:
        *Shape:* (..., out_features)
    """
    return torch.ops.mkl._mkl_linear(states, prepacked, shape, bias, rows)


def can_prepack() -> bool:
    """Whether this build of PyTorch prepacks weights."""
    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def try_rows(rows: int, width: int = 1024) -> Trial | None:
    """Measure the layer that widens so many rows to four times their size, once in a process.

    Returns:
        Speed and exactness of prepacked weights; None where they cannot be prepacked.
    """
    return _try_prepacked(rows, (4 * width,), width, torch.get_num_threads()) if can_prepack() else None


def try_prepacked(layer: JointLinear, constants: Sequence[Tensor]) -> Trial:
    """Measure linear layers of about one size, once in a process.

    Args:
        layer: Layers of a captured graph.

    Returns:
        Speed and exactness of prepacked weights, beside those as they lie.
    """
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
    """Ask how much memory the machine has.

    Returns:
        Bytes, or None where the system does not say.
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
