"""Which architecture of llama.cpp a model is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..native.base import NATIVE
from ..planning import plan_target
from ..probe import arithmetic_of
from ..target import TargetPlan
from ..weights import task_of, weights_of
from .architectures import ARCHITECTURES, Architecture


@dataclass(frozen=True)
class GgufPlan(TargetPlan):
    """A plan that says which architecture of llama.cpp a model is.

    Args:
        architecture: The architecture; where there are obstacles, the nearest.
    """

    architecture: Architecture = ARCHITECTURES[0]


def plan_gguf(target: str, model: ZooPreTrainedModel) -> GgufPlan:
    """Find the first architecture that computes what a model does, or else the one that lacks least.

    Args:
        target: The target's name.
        model: Any model of the zoo.
    """
    config, task, state = model.config, task_of(model), weights_of(model)
    if task != Task.CAUSAL_LM:
        return GgufPlan(target, None, None, (f"it has no head for {task}",))
    found, plans = arithmetic_of(config, task), list[tuple[bool, int, GgufPlan]]()
    for architecture in ARCHITECTURES:
        native = plan_target(NATIVE.get(architecture.native), config, state, task, found)
        if native.route is None:
            continue
        lacking = native.obstacles or tuple(architecture.obstacles(native.route.config))
        known = (f"llama.cpp knows it as {architecture.name}.",)
        plan = GgufPlan(target, type(model).__name__, native.route, lacking, known, architecture)
        plans.append((not native.exact, len(lacking), plan))
    *_, nearest = min(plans, key=lambda one: one[:2])
    first, *others = nearest.obstacles or ("",)
    return replace(nearest, obstacles=(f"as {nearest.architecture.name}: {first}", *others)) if first else nearest
