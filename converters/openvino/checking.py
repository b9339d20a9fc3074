"""Compares OpenVINO graphs with the model they were made of, in this process and in one that has nothing but them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel

from ..errors import VerificationError
from ..onnx.checking import compare
from ..onnx.session import Session
from ..verification import ROUNDING, Difference, distance
from . import fresh
from .files import GRAPH_ENDING, PREFIX
from .session import load_openvino, settings
from .stateful import ORDER


@dataclass(frozen=True)
class Call:
    """A run of a graph from the beginning.

    Args:
        graph: The graph's name.
        given: What it read, by name.
        outputs: What it computed.
    """

    graph: str
    given: dict[str, Tensor]
    outputs: dict[str, Tensor]


class Recorded(Session):
    """A graph whose runs are written down.

    Args:
        session: What runs it.
        calls: Where runs are added.
    """

    def __init__(self, name: str, session: Session, calls: list[Call]) -> None:
        self.name = name
        self.session = session
        self.calls = calls

    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], Any]:
        """Run the graph. Arguments and result as in the base class."""
        outputs, cache = self.session.run(given, past)
        if past is None:
            self.calls.append(Call(self.name, dict(given), outputs))
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
    """Let OpenVINO alone do what it did here.

    Args:
        calls: Runs of graphs.
        folder: Where the graphs are.

    Raises:
        VerificationError: When it cannot, or computes something else.
    """
    with scratch_folder() as place:
        inputs = {
            f"{number}.{name}": tensor.contiguous().clone()
            for number, call in enumerate(calls)
            for name, tensor in call.given.items()
        }
        save_file(inputs, place / "inputs")
        request = {
            "calls": [str(folder / f"{PREFIX}{call.graph}{GRAPH_ENDING}") for call in calls],
            "inputs": str(place / "inputs"),
            "results": str(place / "results"),
            "settings": settings(),
            "order": ORDER,
        }
        (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-I", fresh.__file__, str(place / "request.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise VerificationError(f"OpenVINO cannot run the export in a process of its own: {last}")
        found = load_file(place / "results")
    ours = {f"{number}.{name}": value for number, call in enumerate(calls) for name, value in call.outputs.items()}
    scale = max(1.0, *(float(tensor.abs().max()) for tensor in ours.values()))
    worst = distance(ours, found, list(ours))
    if not worst <= ROUNDING * scale:
        raise VerificationError(f"OpenVINO computes something else in a process of its own: {worst:.2g} apart")
