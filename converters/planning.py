"""Which classes of transformers can express a model, by which symmetries, and why others cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo.models import ZooConfig, ZooPreTrainedModel

from .native.base import NATIVE, NativeFormat
from .probe import needs_masks, own_arithmetic
from .symmetries import Route, find_route
from .symmetries.base import State
from .weights import task_of, weights_of

BUNDLE = "bundle"
"""The target that every variant has."""

ONNX, CTRANSLATE2 = "onnx", "ctranslate2"
"""Targets for other engines."""


@dataclass(frozen=True)
class TargetPlan:
    """Whether and how a model becomes one of a class of transformers.

    Args:
        target: What to call the target: a model type of transformers.
        class_name: The class, None where it has none for the model's task.
        route: How settings and weights change, None where there is no class.
        obstacles: Why not, a phrase each; the export is exact where there are none.
        notes: What users of the export should know.
    """

    target: str
    class_name: str | None
    route: Route | None = field(repr=False)
    obstacles: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the class expresses the model exactly."""
        return not self.obstacles

    @property
    def transforms(self) -> tuple[str, ...]:
        """Names of the symmetries that apply."""
        return tuple(step.symmetry.name for step in self.route.steps) if self.route else ()

    @property
    def half_precision(self) -> bool:
        """Whether the exported weights can be expected to survive 16-bit floats."""
        return all(step.symmetry.half_precision for step in self.route.steps) if self.route else self.exact

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary."""
        return {
            "target": self.target,
            "class": self.class_name,
            "exact": self.exact,
            "transforms": list(self.transforms),
            "obstacles": list(self.obstacles),
            "notes": list(self.notes),
            "half_precision": self.half_precision,
        }


def plan_export(model: ZooPreTrainedModel) -> list[TargetPlan]:
    """Plan every export to a class of transformers.

    Args:
        model: Any model of the zoo.

    Returns:
        Exact ones first, those with the fewest and most robust changes before others.
    """
    config, task, state = model.config, task_of(model), weights_of(model)
    own = own_arithmetic(config, task)
    plans = [plan_target(NATIVE.get(name), config, state, task, own) for name in NATIVE]
    return sorted(plans, key=_rank)


def plan_engines(model: ZooPreTrainedModel) -> list[TargetPlan]:
    """Plan the exports that are no class of transformers.

    Args:
        model: Any model of the zoo.

    Returns:
        The bundle, CTranslate2, and ONNX, of which only tracing tells whether it works.
    """
    from .ctranslate2.planning import plan_ctranslate2

    name = type(model).__name__
    route, obstacles, notes = plan_ctranslate2(model)
    return [
        TargetPlan(BUNDLE, name, None, (), ("It brings its own code.",)),
        TargetPlan(CTRANSLATE2, name if route else None, route, obstacles, notes),
        TargetPlan(ONNX, name, None, (), ("It is traced and compared when it is exported.",)),
    ]


def _rank(plan: TargetPlan) -> tuple[bool, bool, int, int]:
    changes = len(plan.transforms) if plan.exact else 0
    return not plan.exact, not plan.half_precision, changes, NATIVE.get(plan.target).rank


def plan_target(
    native: NativeFormat, config: ZooConfig, state: State, task: str, own: list[str] | None = None
) -> TargetPlan:
    """Plan one export.

    Args:
        native: The class's format.
        config: The model's settings.
        state: Its weights, named as under a head.
        task: What its head is for.
        own: What its variant computes beyond its settings, found out if not given.
    """
    class_name = native.classes.get(task)
    stack = [] if native.stack == config.stack else native.obstacles(config, state, task)
    if class_name is None or stack:
        reasons = stack or [f"it has no class for {task}"]
        return TargetPlan(native.name, class_name, None, tuple(reasons))
    obstacles = list(own_arithmetic(config, task) if own is None else own)
    route = find_route(config, native.needs(config, task), task, native.reasons)
    obstacles += route.obstacles
    obstacles += native.obstacles(route.config, state, task)
    notes = list(native.notes(route.config, task))
    if not obstacles and needs_masks(config, task):
        notes.append("Give attention masks: the original made them from the ids where none were given.")
    fragile = [step.symmetry.name for step in route.steps if not step.symmetry.half_precision]
    if fragile:
        notes.append(f"Keep it in float32: 16-bit floats will likely break {', '.join(fragile)}.")
    return TargetPlan(native.name, class_name, route, tuple(obstacles), tuple(notes))
