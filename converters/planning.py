"""Which classes of transformers can express a model, by which symmetries, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zoo.models import POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from .native.declared import NATIVE, NativeFormat
from .probe import Arithmetic, arithmetic_of
from .symmetries import find_route
from .symmetries.base import State
from .symmetries.route import plain_needs
from .target import TARGETS, Reason, TargetPlan, because
from .weights import further_tokens_left_out, task_of, weights_of


def plan_export(model: ZooPreTrainedModel, names: Iterable[str] | None = None) -> list[TargetPlan]:
    """Plan exports to all classes of transformers, or to those of some model types.

    Exact ones are first, and those with the fewest and most robust changes before others.
    """
    config, task, state = model.config, task_of(model), weights_of(model)
    found = arithmetic_of(config, task)
    plans = [plan_target(NATIVE.get(name), config, state, task, found) for name in (NATIVE if names is None else names)]
    return sorted(plans, key=_rank)


def plan_engines(model: ZooPreTrainedModel) -> list[TargetPlan]:
    """Plan exports to the bundle and to other engines; that some of them work is known only after a trial."""
    left_out = further_tokens_left_out(model.config, task_of(model))
    plans = [TARGETS.get(name).plan(model) for name in TARGETS]
    return [plan if plan.target == "bundle" else replace(plan, notes=(*plan.notes, *left_out)) for plan in plans]


def nearest(plans: Iterable[TargetPlan]) -> TargetPlan | None:
    """The plan with the fewest obstacles, of those with a class for the task."""
    possible = (plan for plan in plans if plan.route is not None)
    return min(possible, key=lambda plan: len(plan.obstacles), default=None)


def _rank(plan: TargetPlan) -> tuple[bool, bool, int, int]:
    changes = len(plan.transforms) if plan.exact else 0
    return not plan.exact, not plan.half_precision, changes, NATIVE.get(plan.target).rank


def plan_target(
    native: NativeFormat, config: ZooConfig, state: State, task: str, found: Arithmetic | None = None
) -> TargetPlan:
    """Plan one export; `found` are computations of the variant beyond its settings, found out if not given."""
    class_name = native.classes.get(task)
    stack = [] if native.stack == config.stack else native.obstacles(config, state, task)
    if class_name is None or stack:
        reasons = stack or [f"it has no class for {task}"]
        return TargetPlan(native.name, class_name, None, tuple(because(Reason.ENGINE, reasons)))
    found = arithmetic_of(config, task) if found is None else found
    obstacles = because(Reason.ENGINE, found.own)
    route = find_route(config, {**plain_needs(task), **native.needs(config, task)}, task, native.reasons)
    obstacles += because(Reason.SETTING, [*route.obstacles, *native.obstacles(route.config, state, task)])
    notes = [*native.notes(route.config, task), *further_tokens_left_out(config, task)]
    if not obstacles and found.needs_masks:
        notes.append("Give attention masks: the original made them from the ids where none were given.")
    length = POSITIONS.get(route.config.position).changes_after(route.config)
    if length is not None and task in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM) and native.name != "phi3":
        notes.append(
            f"Generate with use_cache=False beyond {length} tokens: the class does not rotate cached keys again."
        )
    fragile = [step.symmetry.name for step in route.steps if not step.symmetry.half_precision]
    if fragile:
        notes.append(f"Keep it in float32: 16-bit floats will likely break {', '.join(fragile)}.")
    return TargetPlan(native.name, class_name, route, tuple(obstacles), tuple(notes))
