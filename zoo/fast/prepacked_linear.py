"""Products of few rows by weights that are laid out for them, on a CPU.

A matrix is multiplied by one to some dozens of rows in every step of generation. MKL then takes two to five times as
long as it needs where it has to make do with the weights as they lie; it can lay them out once for a number of rows.
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
from torch import fx
from torch.nn import functional as F

from .graph_capture import Program, Recording, copy_of, written_down
from .matmul import Trial, compare

PAYS = 1.25
"""How many times as fast a product has to be for its weights to be laid out. That takes as long as ten to twenty times
the product; at this gain a hundred steps make up for it."""

SHARE = 1 / 8
"""The share of the machine's memory that laid out weights may take."""

LARGEST = 1 << 23
"""Size of the weights up to which products are tried; larger ones behave alike."""

linear = torch.ops.aten.linear.default


@dataclass(frozen=True)
class Product:
    """Linear layers of a recording that read the same input, as one product.

    Attributes:
        nodes: Of the recording's graph.
        weights: Which of the constants they multiply by.
        biases: Which they add; none, or as many.
        rows: How many rows the input has.
    """

    nodes: tuple[fx.Node, ...]
    weights: tuple[int, ...]
    biases: tuple[int, ...]
    rows: int

    def widths(self, constants: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """How many outputs each of the layers has."""
        return tuple(constants[place].shape[0] for place in self.weights)

    def lay_out(self, constants: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Lay the weights out.

        Args:
            constants: Of the recording.

        Returns:
            The weights as MKL wants them, a tensor that tells their shape and takes no memory, and the bias if there
            is one.
        """
        weights = torch.cat([constants[place].detach() for place in self.weights])
        laid_out = torch.ops.mkl._mkl_reorder_linear_weight(weights, self.rows)
        biases = [constants[place].detach() for place in self.biases]
        return (laid_out, weights.new_empty(1).expand_as(weights), *([torch.cat(biases)] if biases else []))


@dataclass(frozen=True)
class Packing:
    """A recording whose products read laid out weights.

    Attributes:
        program: Takes all inputs, all constants of the recording, then what the products lay out.
        products: Those that do.
    """

    program: Program
    products: tuple[Product, ...]

    def pack(self, constants: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Lay weights out.

        Args:
            constants: Of the recording.

        Returns:
            What the program takes last, as large as the weights; nothing changes in it when weights change.
        """
        return tuple(tensor for product in self.products for tensor in product.lay_out(constants))


def packing_of(recording: Recording, *, everywhere: bool = False) -> Packing | None:
    """Find the products of a recording that laid out weights make faster, by a trial of each size.

    Args:
        recording: Of a step.
        everywhere: Whether to take them all, without a trial.

    Returns:
        None if there are none, or no memory for them.
    """
    if not can_pack():
        return None
    constants = recording.constants
    graph = copy_of(recording.graph)
    products = [
        product for product in products_of(graph, constants) if everywhere or try_packed(product, constants).pays
    ]
    size = sum(constants[place].nbytes for product in products for place in product.weights)
    memory = memory_of_machine()
    if not products or (memory is not None and size > SHARE * memory):
        return None
    for product in products:
        replace(graph, product, constants)
    return Packing(written_down(graph), tuple(products))


def products_of(graph: fx.Graph, constants: Sequence[torch.Tensor]) -> list[Product]:
    """Find the float32 products of a recording whose number of rows is known.

    Args:
        graph: Of the recording.
        constants: Its constants.

    Returns:
        All of them, those with the same input as one.
    """
    inputs = graph.find_nodes(op="placeholder")
    places = {node: place for place, node in enumerate(inputs[len(inputs) - len(constants) :])}
    groups: dict[Any, list[fx.Node]] = {}
    for node in graph.find_nodes(op="call_function", target=linear):
        states, weight, bias = (*node.args, None)[:3]
        *rows, _ = states.meta["val"].shape
        is_constant = weight in places and (bias is None or bias in places)
        if is_constant and constants[places[weight]].dtype == torch.float32 and all(type(size) is int for size in rows):
            groups.setdefault((states, math.prod(rows), bias is None), []).append(node)
    return [
        Product(
            tuple(nodes),
            tuple(places[node.args[1]] for node in nodes),
            () if has_no_bias else tuple(places[node.args[2]] for node in nodes),
            rows,
        )
        for (_, rows, has_no_bias), nodes in groups.items()
    ]


def replace(graph: fx.Graph, product: Product, constants: Sequence[torch.Tensor]) -> None:
    """Let a product read laid out weights.

    Args:
        graph: Changed in place; what `lay_out` returns become its last inputs.
        product: One of its own.
        constants: Of the recording.
    """
    inputs = graph.find_nodes(op="placeholder")
    for place in range(len(inputs), len(inputs) + (3 if product.biases else 2)):
        with graph.inserting_after(inputs[-1]):
            inputs.append(graph.placeholder(f"packed_{place}"))
    packed, shape, bias = inputs[-3:] if product.biases else (*inputs[-2:], None)
    first = product.nodes[0]
    with graph.inserting_before(first):
        joint = graph.call_function(packed_product, (first.args[0], packed, shape, bias, product.rows))
        widths = list(product.widths(constants))
        parts = [joint]
        if len(widths) > 1:
            split = graph.call_function(torch.split, (joint, widths, -1))
            parts = [graph.call_function(operator.getitem, (split, place)) for place in range(len(widths))]
    for node, part in zip(product.nodes, parts, strict=True):
        node.replace_all_uses_with(part)
        graph.erase_node(node)


def packed_product(
    states: torch.Tensor, packed: torch.Tensor, shape: torch.Tensor, bias: torch.Tensor | None, rows: int
) -> torch.Tensor:
    """Multiply by laid out weights.

    Args:
        states: As many rows as they were laid out for. *Shape:* (..., in_features)
        packed: The laid out weights.
        shape: Tells their size. *Shape:* (out_features, in_features)
        bias: *Shape:* (out_features,)
        rows: For how many rows they were laid out.

    Returns:
        *Shape:* (..., out_features)
    """
    return torch.ops.mkl._mkl_linear(states, packed, shape, bias, rows)


def can_pack() -> bool:
    """Whether this build of PyTorch lays weights out."""
    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def try_rows(rows: int, width: int = 1024) -> Trial | None:
    """Measure the product that widens so many rows to four times their size, once in a process.

    Args:
        rows: How many.
        width: The hidden size.

    Returns:
        Speed and exactness of laid out weights; None where they cannot be laid out.
    """
    return _try_packed(rows, (4 * width,), width, torch.get_num_threads()) if can_pack() else None


def try_packed(product: Product, constants: Sequence[torch.Tensor]) -> Trial:
    """Measure a product of about one size, once in a process.

    Args:
        product: Of a recording.
        constants: The recording's.

    Returns:
        Speed and exactness of laid out weights, beside those as they lie.
    """
    widths, in_features = product.widths(constants), constants[product.weights[0]].shape[1]
    largest = max(1, LARGEST // (in_features * len(widths)))
    return _try_packed(
        product.rows, tuple(min(width, largest) for width in widths), in_features, torch.get_num_threads()
    )


@cache
def _try_packed(rows: int, widths: tuple[int, ...], in_features: int, threads: int) -> Trial:
    generator = torch.Generator().manual_seed(0)
    states, weights = (torch.randn(size, in_features, generator=generator) for size in (rows, sum(widths)))
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weights, rows)
    separate = weights.split(list(widths))
    return compare(
        lambda: [F.linear(states, weight) for weight in separate],
        lambda: packed_product(states, packed, weights, None, rows),
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
