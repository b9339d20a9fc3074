"""Compares OpenVINO graphs with the model they were made of, in this process and in one that has nothing but them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.models import ZooPreTrainedModel

from ..errors import VerificationError
from ..onnx.session import Session
from ..verification import ROUNDING, Difference, compare, distance, run_alone
from .files import GRAPH_ENDING, PREFIX
from .session import load_openvino, settings
from .stateful import ORDER

Call = tuple[str, dict[str, Tensor], dict[str, Tensor]]
"""A run of a graph from the beginning: the graph's name, what it read, and what it computed."""


class Recorded(Session):
    """A graph that appends its runs to a list."""

    def __init__(self, name: str, session: Session, calls: list[Call]) -> None:
        self.name, self.session, self.calls = name, session, calls

    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], Any]:
        """Run the graph. Arguments and result as in the base class."""
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
    theirs = run_alone(request, inputs, "OpenVINO cannot run the export in a process of its own")
    scale = max(1.0, *(float(tensor.abs().max()) for tensor in ours.values()))
    worst = distance(ours, theirs, list(ours))
    if not worst <= ROUNDING * scale:
        raise VerificationError(f"OpenVINO computes something else in a process of its own: {worst:.2g} apart")
