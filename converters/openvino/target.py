"""OpenVINO as a target of exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..onnx.graphs import DECODER, WHOLE
from ..target import TARGETS, EngineTarget, ExportOptions, TargetPlan
from .files import GRAPH_ENDING, PREFIX

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from zoo.models import ZooPreTrainedModel

    from ..verification import Difference


class OpenVinoTarget(EngineTarget):
    """Graphs for OpenVINO."""

    name = library = extra = module = "openvino"
    summary = (
        "graphs for OpenVINO, of any batch and length, the cache of target positions inside of them; "
        "`--dtype` float32, float16, int8 (weights, by NNCF)"
    )
    engine = "OpenVINO"
    marks = (f"{PREFIX}{WHOLE}{GRAPH_ENDING}", f"{PREFIX}{DECODER}{GRAPH_ENDING}")
    dtypes = ("float32", "float16", "int8")
    by_trial = True
    caveats = (
        "OpenVINO 2026.4 computes in bfloat16 where the processor can, unless it is compiled with "
        "`EXECUTION_MODE_HINT: ACCURACY`. Graphs store that as `runtime_options`, with a cache in float32 and without "
        "quantized activations; OpenVINO follows the latter two by itself, but another program has to pass the hint.",
        "OpenVINO reads zeros where a table has no such row. Graphs check ids and positions, and fail.",
        "`openvino.convert_model` and NNCF 3.4 report their use to Intel unless that was refused; the zoo does without "
        "the former and tells the latter not to.",
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """State that it has to be tried, unless what it caches is no keys and values."""
        from ..onnx.graphs import obstacles

        notes = ("It is traced and compared when it is exported.",)
        return TargetPlan(self.name, type(model).__name__, None, obstacles(model), notes)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Trace the graphs, and translate them."""
        from .stateful import write_openvino

        write_openvino(model, folder, self.stored(options))

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Run the graphs here, and in a process that has nothing but OpenVINO."""
        from .checking import check_openvino

        exact = self.stored(options) == self.dtypes[0]
        return check_openvino(model, folder, exact=exact, fresh_process=options.fresh_process)

    def open(self, folder: Path) -> PreTrainedModel:
        """Load graphs as a model."""
        from .session import load_openvino

        return load_openvino(folder)

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """How another program has to compile it."""
        return (
            'Compile it with the options in its graphs, `graph.get_rt_info(["runtime_options"]).value`: by default '
            "OpenVINO computes in bfloat16 where the processor can.",
        )


TARGETS.register(OpenVinoTarget.name, OpenVinoTarget())
