"""Passes over a captured graph that remove operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx

VIEWS = (Tensor.view, Tensor.reshape)


def eliminate_dead_code(graph: fx.Graph) -> None:
    """Eliminate dead code: operations without users and without side effects."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not node.meta.get("writes"):
            graph.erase_node(node)


def fold_transposes(graph: fx.Graph) -> None:
    """Fold transpositions that keep the order of all elements, as those of a single token, into adjacent views.

    Args:
        graph: Changed in place.
    """
    for node in graph.find_nodes(op="call_function", target=Tensor.transpose):
        source, shape = node.args[0], node.meta["val"].shape
        if not all(type(size) is int for size in shape) or not keeps_order(source.meta["val"].shape, *node.args[1:]):
            continue
        if source.target in VIEWS:
            with graph.inserting_before(node):
                view = graph.call_function(torch.reshape, (source.args[0], tuple(shape)))
            view.meta = node.meta
            node.replace_all_uses_with(view)
        else:
            for user in list(node.users):
                if user.target in VIEWS:
                    user.target = Tensor.reshape
                    user.replace_input_with(node, source)


def keeps_order(shape: Sequence[int], first: int, second: int) -> bool:
    """Whether elements keep their order when two dimensions are swapped: only dimensions of size 1 move past others."""
    dimensions = list(range(len(shape)))
    moved = dimensions.copy()
    moved[first], moved[second] = moved[second], moved[first]
    return [place for place in dimensions if shape[place] != 1] == [place for place in moved if shape[place] != 1]
