"""Which architecture of llama.cpp a model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..native.declared import NATIVE
from ..planning import arithmetic_of, plan_export, plan_target
from ..target import Obstacle, Reason, TargetPlan, as_another, because
from ..weights import task_of, weights_of
from .architectures import ARCHITECTURES, Architecture

UNWRITTEN: Mapping[str, str] = {
    **{name: name for name in ("arcee", "cohere2", "dots1", "ernie4_5", "exaone4", "glm4", "granite", "granitemoe")},
    **{name: name for name in ("jais2", "minicpm3", "mpt", "nemotron", "olmo", "olmoe", "phi3", "qwen2", "seed_oss")},
    **{name: name for name in ("stablelm", "starcoder2")},
    "cohere": "command-r",
    "exaone_moe": "exaone-moe",
    "glm": "chatglm",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "gpt_bigcode": "starcoder",
    "kimi_linear": "kimi-linear",
    "minimax_m2": "minimax-m2",
    "qwen2_moe": "qwen2moe",
    "qwen3_5_text": "qwen35",
}
"""Architectures of llama.cpp that the zoo does not write, by the classes of transformers that they compute."""

OTHER_TASKS: Mapping[str, str] = {
    Task.SEQ2SEQ_LM: "xllamacpp 2026.10 runs no encoder-decoders: it loads a T5 file, but its server calls no encoder "
    'and ends the process at the first request ("llama_encode must be called first")',
    Task.FEATURE_EXTRACTION: Obstacle("files for embeddings", Reason.WRITER),
    Task.SEQUENCE_CLASSIFICATION: Obstacle("files with a classifier", Reason.WRITER),
}
"""Obstacles for heads other than a language model's; llama.cpp has none but these."""


@dataclass(frozen=True)
class GgufPlan(TargetPlan):
    """A plan with the model's architecture in llama.cpp."""

    architecture: Architecture = ARCHITECTURES[0]


def plan_gguf(target: str, model: ZooPreTrainedModel) -> GgufPlan:
    """Find the first architecture that computes what a model does, or else the one that lacks least."""
    config, task, state = model.config, task_of(model), weights_of(model)
    if task != Task.CAUSAL_LM:
        return GgufPlan.refused(target, OTHER_TASKS.get(task, f"it has no head for {task}"))
    arithmetic, plans = arithmetic_of(config, task), list[tuple[bool, int, GgufPlan]]()
    for architecture in ARCHITECTURES:
        native = plan_target(NATIVE.get(architecture.native), config, state, task, arithmetic)
        if native.route is None:
            continue
        lacking = native.obstacles or tuple(because(Reason.SETTING, architecture.obstacles(native.route.config)))
        known = (f"llama.cpp knows it as {architecture.name}.",)
        plan = GgufPlan(target, type(model).__name__, native.route, lacking, known, architecture)
        plans.append((not native.exact, len(lacking), plan))
    differs, _, nearest = min(plans, key=lambda one: one[:2])
    if nearest.exact:
        return nearest
    if differs and (found := beyond(model)) is not None:
        return replace(nearest, obstacles=(found,))
    return replace(nearest, obstacles=as_another(nearest.architecture.name, nearest.obstacles))


def beyond(model: ZooPreTrainedModel) -> Obstacle | None:
    """Find a class that computes what a model does, where the zoo writes no file of it."""
    exact = [plan.target for plan in plan_export(model) if plan.exact]
    known = next((name for name in exact if name in UNWRITTEN), None)
    if known is not None:
        return Obstacle(f"as {UNWRITTEN[known]}, llama.cpp's name of {known}", Reason.WRITER)
    return Obstacle(f"llama.cpp has no architecture like {exact[0]}", Reason.ENGINE) if exact else None
