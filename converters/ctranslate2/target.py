"""CTranslate2 as a target of exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zoo.registry import Task

from ..target import TARGETS, EngineTarget, ExportOptions, TargetPlan
from ..weights import task_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from zoo.models import ZooPreTrainedModel

    from ..verification import Difference


class CTranslate2Target(EngineTarget):
    """Weights and vocabularies for CTranslate2."""

    name = library = extra = module = "ctranslate2"
    summary = "for CTranslate2: seq2seq, causal and encoder models, `--dtype` float32, int8, int16, bfloat16, ..."
    engine = "CTranslate2"
    marks = ("model.bin",)
    dtypes = ("float32", "int8", "int16", "bfloat16", "float16", "int8_float32", "int8_bfloat16", "int8_float16")
    compared_on = "inputs"
    caveats = (
        "CTranslate2 4.8's own converter takes a Marian model of the zoo and makes another of it: it starts from a "
        "zero embedding and drops the last token. The zoo describes models to CTranslate2 itself.",
        "CTranslate2 cuts what it reads after 1024 tokens unless `max_input_length=0` is given, as the zoo does.",
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """Compare the model's arithmetic with CTranslate2's."""
        from .planning import plan_ctranslate2

        route, obstacles, notes = plan_ctranslate2(model)
        return TargetPlan(self.name, type(model).__name__ if route else None, route, obstacles, notes)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write weights, vocabularies and configuration."""
        from .specification import write_ctranslate2

        assert plan.route is not None
        write_ctranslate2(model, folder, plan.route, self.stored(options), options.source)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Compare probabilities and decoded tokens."""
        from .comparing import check_ctranslate2

        return check_ctranslate2(model, folder, self.stored(options))

    def open(self, folder: Path) -> PreTrainedModel:
        """Load an export as a model that generates."""
        from .running import CTranslate2Model

        return CTranslate2Model.open(folder)

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        """Compared outputs."""
        return "last_hidden_state" if task_of(model) == Task.FEATURE_EXTRACTION else "log-probabilities"


TARGETS.register(CTranslate2Target.name, CTranslate2Target())
