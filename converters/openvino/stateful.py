"""OpenVINO graphs: traced as for ONNX, with keys and values as state; sessions, and comparisons with their model."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from zoo.base.errors import CheckpointError, InputError, UnsupportedOperationError, UnwritableError
from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel

from ..errors import ExportError, require
from ..onnx.graphs import GRAPH_ENDING as ONNX_ENDING
from ..onnx.graphs import write_graphs
from ..onnx.models import PAST, PRESENT, GraphModel, Session, is_cached, length_of, model_of
from ..verification import Difference, compare, judge, run_alone
from ..weights import in_dtype, save_settings

PREFIX, GRAPH_ENDING = "openvino_", ".xml"


def write_openvino(model: ZooPreTrainedModel, folder: Path, dtype: str) -> None:
    require("openvino", "openvino", "onnx", "onnxscript")
    if dtype == "int8":
        # By this NNCF sends no report of its use.
        os.environ.setdefault("NNCF_CI", "1")
        require("nncf", "nncf")
    with scratch_folder() as scratch:
        write_graphs(in_dtype(model, dtype) if dtype == "float16" else model, scratch)
        for path in sorted(scratch.glob(f"*{ONNX_ENDING}")):
            graph = read(path, model.config.variant)
            keep_cache(graph)
            check_rows(graph)
            if dtype == "int8":
                graph = rounded(graph)
            elif dtype == "float16":
                halve(graph)
            for name, value in OPTIONS.items():
                graph.set_rt_info(value, [STORED, name])
            save(graph, folder / f"{PREFIX}{path.stem}{GRAPH_ENDING}")
    save_settings(model, folder)


@cache
def runtime() -> Any:
    """The one `Core` of this process.

    The CPU plugin of a `Core` gives its thread another stack for signals, and of two plugins the second sets that of
    the first again when it is gone, freed memory: the next signal with a handler, Ctrl+C for one, ends the process.
    """
    import openvino

    return openvino.Core()


def read(path: Path, variant: str) -> Any:
    try:
        # Not by `openvino.convert_model`, which sends a report of its use.
        return runtime().read_model(str(path))
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise ExportError(f"OpenVINO cannot hold {path.stem} of variant {variant!r}: {last}") from error


def rounded(graph: Any) -> Any:
    """Round the weights of a graph to int8, with a scale and a zero for every row."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):  # for its progress bar
        return nncf.compress_weights(graph)


def halve(graph: Any) -> None:
    """Store in float16 what it holds exactly, as it does the weights of a graph that was traced of rounded ones.

    OpenVINO's own `compress_to_fp16` also rounds what computes positions and epsilons: inverse frequencies that are
    wrong in the fourth digit turn later positions by a quarter of a radian.
    """
    import numpy as np
    import openvino
    from openvino import opset13 as ops

    for node in graph.get_ops():
        if node.get_type_name() == "Constant" and node.get_element_type() == openvino.Type.f32:
            with np.errstate(over="ignore"):
                half = node.data.astype(np.float16)
            if half.size > 1 and np.array_equal(half, node.data):
                stored = ops.convert(ops.constant(half), "f32")
                for reader in node.output(0).get_target_inputs():
                    reader.replace_source_output(stored.output(0))


def save(graph: Any, path: Path) -> None:
    import openvino

    try:
        openvino.save_model(graph, str(path), compress_to_fp16=False)
    except RuntimeError as error:
        # Its message has only the failure of its stream.
        raise UnwritableError(f"{path} cannot be written; is the disk full? ({error})") from error


ORDER = "beam_idx"  # The input with the sequence that each one continues, as Optimum Intel and OpenVINO GenAI name it


def keep_cache(graph: Any) -> None:
    """Turn inputs and outputs of the cache, if there is one, into variables of an `openvino.Model`.

    A new input selects and orders the sequences of the cache, as beam search needs it. At the beginning the cache holds
    no positions, for one sequence per prompt.
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

OUTSIDE = "ids or positions outside of 0 to"  # How the names of nodes begin that fail, which OpenVINO's error contains


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


def load_openvino(folder: Path) -> GraphModel:
    files = sorted(folder.glob(f"{PREFIX}*{GRAPH_ENDING}"))
    return model_of(folder, {path.stem.removeprefix(PREFIX): OpenVinoSession(path) for path in files})


def settings() -> dict[str, str | int]:
    """How graphs are compiled: for exact numbers, on as many threads as torch has."""
    return {
        "EXECUTION_MODE_HINT": OPTIONS["EXECUTION_MODE_HINT"],
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }


class EngineCache(Cache):
    """Keys and values that stay in the engine."""

    def __init__(self, request: Any, rows: int) -> None:
        super().__init__(layers=[])
        self.request = request
        self.order = torch.arange(rows)
        self.seen = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen

    def batch_select_indices(self, indices: Tensor) -> None:
        self.order = self.order[indices]

    reorder_cache = batch_select_indices

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.order = self.order.repeat_interleave(repeats)

    def crop(self, tokens_to_remove: int) -> None:
        raise UnsupportedOperationError("the cache is inside of OpenVINO, which forgets no positions")


class OpenVinoSession:
    """A graph in OpenVINO, on as many threads as torch has."""

    def __init__(self, path: Path) -> None:
        try:
            self.graph = runtime().compile_model(str(path), "CPU", settings())
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            raise CheckpointError(f"OpenVINO cannot load {path}: {last}") from error
        self.reads = [port.any_name for port in self.graph.inputs]
        self.gives = [port.any_name for port in self.graph.outputs]

    def __call__(self, given: Mapping[str, Tensor], past: Any) -> tuple[dict[str, Tensor], EngineCache | None]:
        """Run the graph. The cache is the same one, changed."""
        if ORDER not in self.reads:
            return self.infer(self.graph, given), None
        cache = past if isinstance(past, EngineCache) else None
        if cache is None:
            if length_of(past):
                raise UnsupportedOperationError("the cache is inside of OpenVINO: it goes on from none but its own")
            cache = EngineCache(self.graph.create_infer_request(), len(given["input_ids"]))
        if len(cache.order) != len(given["input_ids"]):
            raise InputError(f"{len(given['input_ids'])} rows were given, but the cache holds {len(cache.order)}")
        outputs = self.infer(cache.request.infer, {**given, ORDER: cache.order.int()})
        cache.order = torch.arange(len(cache.order))
        cache.seen += given["input_ids"].shape[1]
        return outputs, cache

    def infer(self, run: Any, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        try:
            outputs = run({name: given[name].contiguous().numpy() for name in self.reads}, share_inputs=True)
        except RuntimeError as error:
            outside = re.search(rf"'({OUTSIDE}[^']*)'", str(error))
            reason = outside[1] if outside else str(error).strip().splitlines()[-1]
            raise InputError(f"OpenVINO refuses these inputs: {reason}") from error
        found = {name: torch.from_numpy(outputs[name].copy()) for name in self.gives}
        if given["input_ids"].numel() and not all(tensor.numel() for tensor in found.values()):
            # On one thread OpenVINO 2026.4 loses the error and returns nothing.
            raise InputError(f"OpenVINO refuses these inputs: {OUTSIDE} the size of a table")
        return found


Call = tuple[str, dict[str, Tensor], dict[str, Tensor]]
"""A run of a graph from the beginning: the graph's name, what it read, and what it computed."""


def recorded(name: str, session: Session, calls: list[Call]) -> Session:
    """A session that appends its runs to a list."""

    def run(given: Mapping[str, Tensor], past: Any) -> tuple[dict[str, Tensor], Any]:
        outputs, cache = session(given, past)
        if past is None:
            calls.append((name, dict(given), outputs))
        return outputs, cache

    return run


def check_openvino(
    model: ZooPreTrainedModel, folder: Path, *, exact: bool = True, fresh_process: bool = True
) -> Difference:
    """Load an export, and compare it with the original in float32."""
    graphs, calls = load_openvino(folder), list[Call]()
    graphs.sessions = {name: recorded(name, session, calls) for name, session in graphs.sessions.items()}
    difference = compare(model, graphs, exact=exact)
    if not fresh_process:
        return difference
    # OpenVINO alone has to do what it did here.
    files = [str(folder / f"{PREFIX}{name}{GRAPH_ENDING}") for name, _, _ in calls]
    inputs = {f"{call}.{name}": tensor for call, (_, given, _) in enumerate(calls) for name, tensor in given.items()}
    ours = {f"{call}.{name}": tensor for call, (_, _, found) in enumerate(calls) for name, tensor in found.items()}
    request = {"calls": files, "settings": settings(), "order": ORDER}
    theirs = run_alone(request, inputs, "OpenVINO cannot run the export in its own process")
    judge(lambda dtype: ours, {"float32": theirs}, "OpenVINO, in its own process,")
    return difference
