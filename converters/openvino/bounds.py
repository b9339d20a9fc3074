"""Checks ids and positions in a graph: OpenVINO reads zeros where a table has no such row."""

from __future__ import annotations

from typing import Any

OUTSIDE = "ids or positions outside of 0 to"
"""How the names of nodes begin that fail, which OpenVINO's error contains."""


def check_rows(graph: Any) -> None:
    """Let a graph fail where it looks up a row that a table does not have.

    A graph has no assertions: a row is joined to the ids that fits only where all of them are valid. (A reshape
    that has failed once passes when the same is asked again, and an empty row always does.)

    Args:
        graph: An `openvino.Model`, which is changed.
    """
    import numpy as np
    from openvino import opset13 as ops

    for node in graph.get_ops():
        if node.get_type_name() != "Gather":
            continue
        table, index = node.input_value(0), node.input_value(1)
        constant = [port.get_node().get_type_name() == "Constant" for port in (table, index)]
        if constant != [True, False] or len(table.get_shape()) != 2:
            continue
        rows, dtype = table.get_shape()[0], index.get_element_type().to_dtype()
        flat = ops.reshape(index, ops.constant(np.array([-1, 1])), False)
        none, last = (ops.constant(number, dtype=dtype) for number in (0, rows - 1))
        axes = ops.constant(np.arange(2))
        below = ops.maximum(ops.subtract(none, ops.reduce_min(flat, axes)), none)
        above = ops.maximum(ops.subtract(ops.reduce_max(flat, axes), last), none)
        zero, one = (ops.constant(np.int64(number)) for number in (0, 1))
        width = ops.add(ops.minimum(ops.convert(ops.add(below, above), "i64"), one), one)  # 2 where ids are wrong
        further = ops.broadcast(none, ops.concat([ops.constant(np.array([1])), ops.unsqueeze(width, zero)], axis=0))
        joined = ops.concat([flat, further], axis=0)
        joined.set_friendly_name(f"{OUTSIDE} {rows - 1}")
        kept = ops.slice(joined, *(ops.constant(np.array([number])) for number in (0, -1, 1, 0)))
        checked = ops.reshape(kept, ops.shape_of(index), False)
        node.input(1).replace_source_output(checked.output(0))
    graph.validate_nodes_and_infer_types()
