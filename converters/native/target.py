"""A class of transformers as a target of exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zoo.models import TASK_CLASSES
from zoo.models.capabilities import limits_in_vllm_on_cpu
from zoo.registry import Task

from ..planning import plan_target
from ..target import ExportOptions, Target, TargetPlan
from ..verification import verify
from ..weights import task_of, weights_of
from .base import NativeFormat
from .writing import write_native

if TYPE_CHECKING:
    from zoo.models import ZooPreTrainedModel

    from ..verification import Difference


class NativeTarget(Target):
    """A checkpoint of one of transformers' own classes."""

    summary = "a checkpoint of transformers' own class: no zoo, no remote code"

    def __init__(self, native: NativeFormat) -> None:
        self.native, self.name = native, native.name

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """Find the symmetries that lead to the class."""
        return plan_target(self.native, model.config, weights_of(model), task_of(model))

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write weights and configuration under the class's names."""
        assert plan.route is not None
        write_native(model, folder, self.native, plan.route)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Load it where the zoo cannot be imported."""
        return verify(
            model,
            folder,
            TASK_CLASSES[task_of(model)][0],
            self.output(model, plan),
            in_process=not options.fresh_process,
            in_double=self.native.computes_in_double,
        )

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """Add the head size of a decoder that vLLM lacks on CPUs."""
        assert plan.route is not None
        decodes = plan.class_name == self.native.classes.get(Task.CAUSAL_LM)
        return (*plan.notes, *(limits_in_vllm_on_cpu(plan.route.config) if decodes else ()))

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        """Where the class returns it."""
        assert plan.route is not None
        return self.native.output(plan.route.config, task_of(model))
