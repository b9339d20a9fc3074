"""ONNX as a target of exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..target import TARGETS, EngineTarget, ExportOptions, TargetPlan
from .graphs import DECODER, GRAPH_ENDING, WHOLE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from zoo.models import ZooPreTrainedModel

    from ..verification import Difference


class OnnxTarget(EngineTarget):
    """Graphs for ONNX Runtime."""

    name = library = extra = "onnx"
    summary = "graphs for ONNX Runtime, of any batch and length, encoder and decoder apart, with a cache"
    engine, module = "ONNX Runtime", "onnxruntime"
    marks = (f"{WHOLE}{GRAPH_ENDING}", f"{DECODER}{GRAPH_ENDING}")
    by_trial = True

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """State that it has to be tried, unless what it caches is no keys and values."""
        from .graphs import obstacles

        notes = ("It is traced and compared when it is exported.",)
        return TargetPlan(self.name, type(model).__name__, None, obstacles(model), notes)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Trace the graphs."""
        from .graphs import write_onnx

        write_onnx(model, folder)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Run the graphs in ONNX Runtime."""
        from ..verification import compare

        return compare(model, self.open(folder))

    def open(self, folder: Path) -> PreTrainedModel:
        """Load graphs as a model."""
        from .models import model_of
        from .session import OnnxSession

        return model_of(folder, {path.stem: OnnxSession(path) for path in sorted(folder.glob(f"*{GRAPH_ENDING}"))})

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """Nothing more."""
        return ()


TARGETS.register(OnnxTarget.name, OnnxTarget())
