"""Moves the cache of a graph into it, so that keys and values stay in the engine from one token to the next."""

from __future__ import annotations

from typing import Any

from ..onnx.session import PAST, PRESENT, is_cached

ORDER = "beam_idx"
"""The input that says which sequence each one goes on from, as Optimum Intel and OpenVINO GenAI call it."""


def keep_cache(graph: Any) -> None:
    """Turn inputs and outputs of the cache into variables of a graph.

    A new input says which sequences of the cache go on, in which order, as beam search needs it. At the beginning there
    are no positions, of as many sequences as there are prompts.

    Args:
        graph: An `openvino.Model`, which is changed; one without a cache stays as it is.
    """
    import numpy as np
    import openvino
    from openvino import opset13 as ops
    from openvino._offline_transformations import apply_make_stateful_transformation

    cached = [port for port in graph.inputs if is_cached(port.any_name)]
    if not cached:
        return
    order = ops.parameter([-1], dtype=openvino.Type.i32, name=ORDER)
    order.output(0).get_tensor().set_names({ORDER})
    graph.add_parameters([order])
    for port in cached:
        readers = port.get_target_inputs()
        chosen = ops.gather(port, order, ops.constant(0))
        for reader in readers:
            reader.replace_source_output(chosen.output(0))
    graph.validate_nodes_and_infer_types()
    names = [port.any_name for port in cached]
    apply_make_stateful_transformation(graph, {name: name.replace(PAST, PRESENT) for name in names})
    rows = ops.gather(ops.shape_of(order), ops.constant([0]), ops.constant(0))
    for node in graph.get_ops():
        if node.get_type_name() == "ReadValue":
            _, heads, _, size = node.get_output_partial_shape(0)
            sizes = ops.constant(np.array([heads.get_length(), 0, size.get_length()]))
            empty = ops.broadcast(ops.constant(np.float32(0)), ops.concat([rows, sizes], axis=0))
            node.set_arguments([empty])
    graph.validate_nodes_and_infer_types()
