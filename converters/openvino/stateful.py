"""OpenVINO graphs: traced as for ONNX, with keys and values as state."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

from zoo.base.errors import UnwritableError
from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel

from ..errors import ExportError, require
from ..onnx.graphs import GRAPH_ENDING as ONNX_ENDING
from ..onnx.graphs import write_graphs
from ..onnx.models import PAST, PRESENT, is_cached
from ..weights import save_settings

PREFIX, GRAPH_ENDING = "openvino_", ".xml"


def write_openvino(model: ZooPreTrainedModel, folder: Path, dtype: str) -> None:
    require("openvino", "openvino", "onnx", "onnxscript")
    if dtype == "int8":
        # By this NNCF sends no report of its use.
        os.environ.setdefault("NNCF_CI", "1")
        require("nncf", "nncf")
    with scratch_folder() as scratch:
        write_graphs(model, scratch)
        for path in sorted(scratch.glob(f"*{ONNX_ENDING}")):
            graph = read(path, model.config.variant)
            keep_cache(graph)
            check_rows(graph)
            if dtype == "int8":
                graph = rounded(graph)
            for name, value in OPTIONS.items():
                graph.set_rt_info(value, [STORED, name])
            save(graph, folder / f"{PREFIX}{path.stem}{GRAPH_ENDING}", half=dtype == "float16")
    save_settings(model, folder)


def read(path: Path, variant: str) -> Any:
    import openvino

    try:
        # Not by `openvino.convert_model`, which sends a report of its use.
        return openvino.Core().read_model(str(path))
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise ExportError(f"OpenVINO cannot hold {path.stem} of variant {variant!r}: {last}") from error


def rounded(graph: Any) -> Any:
    """Round the weights of a graph to int8, with a scale and a zero for every row."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):  # for its progress bar
        return nncf.compress_weights(graph)


def save(graph: Any, path: Path, *, half: bool = False) -> None:
    import openvino

    try:
        openvino.save_model(graph, str(path), compress_to_fp16=half)
    except RuntimeError as error:
        # Its message has only the failure of its stream.
        raise UnwritableError(f"{path} cannot be written; is the disk full? ({error})") from error


ORDER = "beam_idx"
"""The input with the sequence that each one continues, as Optimum Intel and OpenVINO GenAI name it."""


def keep_cache(graph: Any) -> None:
    """Turn inputs and outputs of the cache into variables of a graph.

    A new input selects and orders the sequences of the cache, as beam search needs it. At the beginning the cache holds
    no positions, for one sequence per prompt.

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


OPTIONS = {"EXECUTION_MODE_HINT": "ACCURACY", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Options of OpenVINO for exact numbers.

By default it computes in bfloat16 where the processor can, quantizes activations, and keeps the cache in 8 bits.
"""

STORED = "runtime_options"
"""Where a graph holds options. OpenVINO 2026.4 follows those of the cache and of activations by itself."""


OUTSIDE = "ids or positions outside of 0 to"
"""How the names of nodes begin that fail, which OpenVINO's error contains."""


def check_rows(graph: Any) -> None:
    """Let a graph fail where it looks up a row that a table does not have.

    A graph has no assertions: a row is joined to the ids that fits only where all of them are valid. (A reshape
    that has failed once passes when the same is asked again, and an empty row always does.)
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
