"""Metrics of a run: location, meaning and format of each number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..run.record import Run
from .comparison import Comparison
from .units import Writer, duration, large, memory, milliseconds, number, percent


@dataclass(frozen=True)
class Metric:
    """One number of a run."""

    key: str  # Its name in files
    title: str
    about: str
    read: Callable[[Run], float | None]  # Finds it in a run that was trained; None where it was not measured
    write: Writer  # Writes it for people, with its unit
    better: int  # 1 where more is better, -1 where less is, 0 where neither is
    group: str  # "Quality", "Size", "Work", "Memory" or "Speed"
    in_brief: bool = True  # Whether brief tables show it

    @property
    def is_cost(self) -> bool:
        return self.group != "Quality" and self.better != 0


def training_flops(run: Run) -> float | None:
    """Operations of a whole training, None where they were not counted."""
    per_token = None if run.costs is None else run.costs.get("training_flops_per_token")
    tokens = None if run.report is None else run.report.get("train_tokens")
    return None if per_token is None or tokens is None else per_token * tokens


def reported(field: str) -> Callable[[Run], float | None]:
    """Read a field of [`zoo.training.TrainingReport`][]."""
    return lambda run: None if run.report is None else run.report.get(field)


def measured(
    key: str, title: str, about: str, *, write: Writer, better: int, group: str, in_brief: bool = True
) -> Metric:
    """A field of [`zoo.analysis.measuring.Costs`][] as a metric."""
    return Metric(
        key, title, about, lambda run: None if run.costs is None else run.costs.get(key), write, better, group, in_brief
    )


def score_metric(key: str, score: dict[str, Any]) -> Metric:
    """A score, named by `key` in reports and described by the fields of [`zoo.data.tasks.Score`][], as a metric."""

    def read(run: Run) -> float | None:
        return None if run.report is None else run.report["scores"].get(key, {}).get("value")

    better = 1 if score.get("higher_is_better", True) else -1
    return Metric(key, score["name"], str(score["signature"]), read, number(2), better, "Quality")


loss = partial(Metric, write=number(3), better=-1, group="Quality")
operations = partial(measured, write=large, better=-1, group="Work")
rate = partial(measured, write=number(0), better=1, group="Speed")
latency = partial(measured, write=milliseconds, better=-1, group="Speed")

LOSSES = (
    loss(
        "heldout_loss",
        "Held-out loss",
        "Cross-entropy on the held-out examples, nats a target token, without label smoothing.",
        reported("heldout_loss"),
    ),
    loss(
        "train_loss",
        "Train loss",
        "The last logged training loss, with label smoothing if the recipe has it.",
        reported("train_loss"),
        in_brief=False,
    ),
)

COSTS = (
    Metric(
        "parameters", "Parameters", "All of them, each shared one once.", reported("num_parameters"), large, -1, "Size"
    ),
    measured(
        "non_embedding_parameters",
        "Non-embedding",
        "Parameters without embeddings of tokens and positions.",
        write=large,
        better=-1,
        group="Size",
        in_brief=False,
    ),
    operations(
        "flops_per_token", "FLOPs/token", "Floating-point operations of a forward pass, a token read or written."
    ),
    operations(
        "training_flops_per_token", "Training FLOPs/token", "The same of a forward and backward pass.", in_brief=False
    ),
    Metric(
        "training_flops",
        "Training FLOPs",
        "Floating-point operations of the whole training.",
        training_flops,
        large,
        better=-1,
        group="Work",
        in_brief=False,
    ),
    measured(
        "activation_bytes",
        "Activations",
        "What one training step keeps for its backward pass, parameters aside.",
        write=memory,
        better=-1,
        group="Memory",
    ),
    Metric(
        "peak_memory",
        "Peak memory",
        "At most in use while training: of the GPU, or of the whole process on a CPU.",
        reported("peak_memory"),
        memory,
        better=-1,
        group="Memory",
    ),
    Metric(
        "train_seconds",
        "Train time",
        "Wall-clock time of training.",
        reported("train_seconds"),
        duration,
        better=-1,
        group="Speed",
        in_brief=False,
    ),
    Metric(
        "train_tokens_per_second",
        "Train tok/s",
        "Tokens trained on a second, source and target ones, padding excluded.",
        reported("train_tokens_per_second"),
        number(0),
        better=1,
        group="Speed",
    ),
    measured(
        "model_flops_utilization",
        "MFU",
        "Model-FLOPs utilisation: operations a second while training, of the most that matrix products reach here.",
        write=percent,
        better=1,
        group="Speed",
    ),
    rate("prefill_tokens_per_second", "Prefill tok/s", "Tokens read a second, a batch at a time.", in_brief=False),
    rate("decode_tokens_per_second", "Decode tok/s", "Tokens written a second, one sequence at a time with a cache."),
    latency("decode_latency_p50", "Latency p50", "Median time from one written token to the next.", in_brief=False),
    latency("decode_latency_p95", "Latency p95", "The time that one written token of twenty exceeds."),
)


def metrics_of(comparison: Comparison) -> list[Metric]:
    """List the metrics that at least one run has: scores, the main one first; losses; costs."""
    scores: dict[str, dict[str, Any]] = {}
    for run in comparison.runs:
        scores |= run.report["scores"] if run.report is not None else {}
    ordered = sorted(scores, key=lambda key: key != comparison.main_score)
    metrics = [*(score_metric(key, scores[key]) for key in ordered), *LOSSES, *COSTS]
    return [metric for metric in metrics if any(metric.read(run) is not None for run in comparison.runs)]
