"""OpenVINO sessions, and the comparison of graphs with their model, here and in a process without the zoo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from zoo.base.errors import CheckpointError, InputError, UnsupportedOperationError
from zoo.models import ZooPreTrainedModel

from ..onnx.models import GraphModel, Session, length_of, model_of
from ..verification import Difference, compare, judge, run_alone
from .stateful import GRAPH_ENDING, OPTIONS, ORDER, OUTSIDE, PREFIX


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


class OpenVinoSession(Session):
    """A graph in OpenVINO, on as many threads as torch has."""

    def __init__(self, path: Path) -> None:
        import openvino

        try:
            self.graph = openvino.Core().compile_model(str(path), "CPU", settings())
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            raise CheckpointError(f"OpenVINO cannot load {path}: {last}") from error
        self.reads = [port.any_name for port in self.graph.inputs]
        self.gives = [port.any_name for port in self.graph.outputs]

    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], EngineCache | None]:
        """Run the graph. The cache is the same one, changed."""
        if ORDER not in self.reads:
            return self.infer(self.graph, given), None
        cache = past if isinstance(past, EngineCache) else None
        if cache is None:
            if length_of(past):
                raise UnsupportedOperationError("the cache is inside of OpenVINO: it goes on from none but its own")
            cache = EngineCache(self.graph.create_infer_request(), len(given["input_ids"]))
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


class Recorded(Session):
    """A graph that appends its runs to a list."""

    def __init__(self, name: str, session: Session, calls: list[Call]) -> None:
        self.name, self.session, self.calls = name, session, calls

    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], Any]:
        outputs, cache = self.session.run(given, past)
        if past is None:
            self.calls.append((self.name, dict(given), outputs))
        return outputs, cache


def check_openvino(
    model: ZooPreTrainedModel, folder: Path, *, exact: bool = True, fresh_process: bool = True
) -> Difference:
    """Load an export, and compare it with the original in float32."""
    graphs, calls = load_openvino(folder), list[Call]()
    graphs.sessions = {name: Recorded(name, session, calls) for name, session in graphs.sessions.items()}
    difference = compare(model, graphs, exact=exact)
    if fresh_process:
        replay(calls, folder)
    return difference


def replay(calls: list[Call], folder: Path) -> None:
    """Let OpenVINO alone do what it did here."""
    files = [str(folder / f"{PREFIX}{name}{GRAPH_ENDING}") for name, _, _ in calls]
    inputs = {f"{call}.{name}": tensor for call, (_, given, _) in enumerate(calls) for name, tensor in given.items()}
    ours = {f"{call}.{name}": tensor for call, (_, _, found) in enumerate(calls) for name, tensor in found.items()}
    request = {"calls": files, "settings": settings(), "order": ORDER}
    theirs = run_alone(request, inputs, "OpenVINO cannot run the export in its own process")
    judge(lambda dtype: ours, {"float32": theirs}, "OpenVINO, in its own process,")
