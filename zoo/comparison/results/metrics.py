"""Metrics of a run: location, meaning and format of each number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..run.record import Run
from .comparison import Comparison
from .units import Writer, duration, large, memory, milliseconds, number, percent

Reader = Callable[[Run], float | None]
"""Finds a number in a run that was trained; None where it was not measured."""


@dataclass(frozen=True)
class Metric:
    """One number of a run."""

    key: str  # Its name in files
    title: str
    about: str
    read: Reader
    write: Writer  # Writes it for people, with its unit
    better: int  # 1 where more is better, -1 where less is, 0 where neither is
    group: str  # "Quality", "Size", "Work", "Memory" or "Speed"
    in_brief: bool = True  # Whether brief tables show it

    @property
    def is_cost(self) -> bool:
        return self.group != "Quality" and self.better != 0


def training_flops(run: Run) -> float | None:
    per_token = None if run.costs is None else run.costs.get("training_flops_per_token")
    tokens = None if run.report is None else run.report.get("train_tokens")
    return None if per_token is None or tokens is None else per_token * tokens


def reported(field: str) -> Reader:
    return lambda run: None if run.report is None else run.report.get(field)


def score_metric(key: str, score: dict[str, Any]) -> Metric:
    def read(run: Run) -> float | None:
        return None if run.report is None else run.report["scores"].get(key, {}).get("value")

    better = 1 if score.get("higher_is_better", True) else -1
    return Metric(key, score["name"], str(score["signature"]), read, number(2), better, "Quality")


ABOUT = {
    "heldout_loss": (
        "Held-out loss",
        "Cross-entropy on the held-out examples, nats a label (a target token, or a class), without label smoothing.",
    ),
    "train_loss": ("Train loss", "The last logged training loss, with label smoothing if the recipe has it."),
    "parameters": ("Parameters", "All of them, each shared one once."),
    "non_embedding_parameters": ("Non-embedding", "Parameters without embeddings of tokens and positions."),
    "flops_per_token": ("FLOPs/token", "Floating-point operations of a forward pass, a token read or written."),
    "training_flops_per_token": ("Training FLOPs/token", "The same of a forward and backward pass."),
    "training_flops": ("Training FLOPs", "Floating-point operations of the whole training."),
    "activation_bytes": ("Activations", "What one training step keeps for its backward pass, parameters aside."),
    "peak_memory": ("Peak memory", "At most in use while training: of the GPU, or of the whole process on a CPU."),
    "train_seconds": ("Train time", "Wall-clock time of training."),
    "train_tokens_per_second": ("Train tok/s", "Tokens trained on a second, source and target ones, padding excluded."),
    "model_flops_utilization": (
        "MFU",
        "Model-FLOPs utilisation: operations a second while training, of the most that matrix products reach here.",
    ),
    "prefill_tokens_per_second": ("Prefill tok/s", "Tokens read a second, a batch at a time."),
    "decode_tokens_per_second": ("Decode tok/s", "Tokens written a second, one sequence at a time with a cache."),
    "decode_latency_p50": ("Latency p50", "Median time from one written token to the next."),
    "decode_latency_p95": ("Latency p95", "The time that one written token of twenty exceeds."),
}
"""Titles and descriptions."""


def metric(
    key: str, group: str, write: Writer, better: int, read: Reader | None = None, *, in_brief: bool = True
) -> Metric:
    """A metric of `ABOUT`, by default the field of [`zoo.analysis.measuring.Costs`][] with its key."""
    usual = read or (lambda run: None if run.costs is None else run.costs.get(key))
    return Metric(key, *ABOUT[key], usual, write, better, group, in_brief)


LOSSES = (
    metric("heldout_loss", "Quality", number(3), -1, reported("heldout_loss")),
    metric("train_loss", "Quality", number(3), -1, reported("train_loss"), in_brief=False),
)

COSTS = (
    metric("parameters", "Size", large, -1, reported("num_parameters")),
    metric("non_embedding_parameters", "Size", large, -1, in_brief=False),
    metric("flops_per_token", "Work", large, -1),
    metric("training_flops_per_token", "Work", large, -1, in_brief=False),
    metric("training_flops", "Work", large, -1, training_flops, in_brief=False),
    metric("activation_bytes", "Memory", memory, -1),
    metric("peak_memory", "Memory", memory, -1, reported("peak_memory")),
    metric("train_seconds", "Speed", duration, -1, reported("train_seconds"), in_brief=False),
    metric("train_tokens_per_second", "Speed", number(0), 1, reported("train_tokens_per_second")),
    metric("model_flops_utilization", "Speed", percent, 1),
    metric("prefill_tokens_per_second", "Speed", number(0), 1, in_brief=False),
    metric("decode_tokens_per_second", "Speed", number(0), 1),
    metric("decode_latency_p50", "Speed", milliseconds, -1, in_brief=False),
    metric("decode_latency_p95", "Speed", milliseconds, -1),
)


def metrics_of(comparison: Comparison) -> list[Metric]:
    """List the metrics that at least one run has: scores, the main one first; losses; costs."""
    scores: dict[str, dict[str, Any]] = {}
    for run in comparison.runs:
        scores |= run.report["scores"] if run.report is not None else {}
    ordered = sorted(scores, key=lambda key: key != comparison.main_score)
    metrics = [*(score_metric(key, scores[key]) for key in ordered), *LOSSES, *COSTS]
    return [metric for metric in metrics if any(metric.read(run) is not None for run in comparison.runs)]
