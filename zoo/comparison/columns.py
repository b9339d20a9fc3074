"""What is told of a run, column by column: where it stands, how it is written, what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .numbers import Writer, duration, large, memory, milliseconds, number, percent
from .results import Comparison, Run


@dataclass(frozen=True)
class Column:
    """One number of a run.

    Attributes:
        key: Its name in files.
        title: Its name above a table.
        about: What it is, in a sentence.
        read: Finds it in a run that was trained; None where it was not measured.
        write: Writes it for people, with its unit.
        better: 1 where more is better, -1 where less is, 0 where neither is.
        group: "Quality", "Size", "Work", "Memory" or "Speed".
        in_brief: Whether it is shown where there is little room.
    """

    key: str
    title: str
    about: str
    read: Callable[[Run], float | None]
    write: Writer
    better: int
    group: str
    in_brief: bool = True

    @property
    def is_cost(self) -> bool:
        """Whether it says what quality is paid with."""
        return self.group != "Quality" and self.better != 0


def of_report(key: str) -> Callable[[Run], float | None]:
    """Find a number in the report of a training.

    Args:
        key: A field of [`zoo.training.TrainingReport`][].

    Returns:
        The reader.
    """
    return lambda run: None if run.report is None else run.report.get(key)


def of_costs(key: str) -> Callable[[Run], float | None]:
    """Find a number in what was measured apart from training.

    Args:
        key: A field of [`zoo.measuring.Costs`][].

    Returns:
        The reader.
    """
    return lambda run: None if run.costs is None else run.costs.get(key)


def of_score(key: str) -> Callable[[Run], float | None]:
    """Find a score.

    Args:
        key: Its name.

    Returns:
        The reader.
    """
    return lambda run: None if run.report is None else run.report["scores"].get(key, {}).get("value")


def training_flops(run: Run) -> float | None:
    """Compute the operations of a whole training.

    Args:
        run: A run.

    Returns:
        Their number, None where they were not counted.
    """
    per_token, tokens = of_costs("training_flops_per_token")(run), of_report("train_tokens")(run)
    return None if per_token is None or tokens is None else per_token * tokens


LOSSES = (
    Column(
        "heldout_loss",
        "Held-out loss",
        "Cross-entropy on the held-out examples, nats a target token, without label smoothing.",
        of_report("heldout_loss"),
        number(3),
        -1,
        "Quality",
    ),
    Column(
        "train_loss",
        "Train loss",
        "The last logged training loss, with label smoothing if the recipe has it.",
        of_report("train_loss"),
        number(3),
        -1,
        "Quality",
        False,
    ),
)

COSTS = (
    Column(
        "parameters", "Parameters", "All of them, each shared one once.", of_report("num_parameters"), large, -1, "Size"
    ),
    Column(
        "non_embedding_parameters",
        "Non-embedding",
        "Parameters without embeddings of tokens and positions.",
        of_costs("non_embedding_parameters"),
        large,
        -1,
        "Size",
        False,
    ),
    Column(
        "flops_per_token",
        "FLOPs/token",
        "Floating-point operations of a forward pass, a token read or written.",
        of_costs("flops_per_token"),
        large,
        -1,
        "Work",
    ),
    Column(
        "training_flops_per_token",
        "Training FLOPs/token",
        "The same of a forward and backward pass.",
        of_costs("training_flops_per_token"),
        large,
        -1,
        "Work",
        False,
    ),
    Column(
        "training_flops",
        "Training FLOPs",
        "Floating-point operations of the whole training.",
        training_flops,
        large,
        -1,
        "Work",
        False,
    ),
    Column(
        "activation_bytes",
        "Activations",
        "What one training step keeps for its backward pass, parameters aside.",
        of_costs("activation_bytes"),
        memory,
        -1,
        "Memory",
    ),
    Column(
        "peak_memory",
        "Peak memory",
        "At most in use while training: of the GPU, or of the whole process on a CPU.",
        of_report("peak_memory"),
        memory,
        -1,
        "Memory",
    ),
    Column(
        "train_seconds",
        "Train time",
        "Wall-clock time of training.",
        of_report("train_seconds"),
        duration,
        -1,
        "Speed",
        False,
    ),
    Column(
        "train_tokens_per_second",
        "Train tok/s",
        "Tokens trained on a second, source and target ones, padding excluded.",
        of_report("train_tokens_per_second"),
        number(0),
        1,
        "Speed",
    ),
    Column(
        "model_flops_utilization",
        "MFU",
        "Model-FLOPs utilisation: operations a second while training, of the most that matrix products reach here.",
        of_costs("model_flops_utilization"),
        percent,
        1,
        "Speed",
    ),
    Column(
        "prefill_tokens_per_second",
        "Prefill tok/s",
        "Tokens read a second, a batch at a time.",
        of_costs("prefill_tokens_per_second"),
        number(0),
        1,
        "Speed",
        False,
    ),
    Column(
        "decode_tokens_per_second",
        "Decode tok/s",
        "Tokens written a second, one sequence at a time with a cache.",
        of_costs("decode_tokens_per_second"),
        number(0),
        1,
        "Speed",
    ),
    Column(
        "decode_latency_p50",
        "Latency p50",
        "Median time from one written token to the next.",
        of_costs("decode_latency_p50"),
        milliseconds,
        -1,
        "Speed",
        False,
    ),
    Column(
        "decode_latency_p95",
        "Latency p95",
        "The time that one written token of twenty exceeds.",
        of_costs("decode_latency_p95"),
        milliseconds,
        -1,
        "Speed",
    ),
)


def columns_of(comparison: Comparison) -> list[Column]:
    """List the columns that at least one run of a comparison fills.

    Args:
        comparison: The comparison.

    Returns:
        Scores, the main one first; losses; costs.
    """
    scores: dict[str, dict[str, Any]] = {}
    for run in comparison.runs:
        scores |= run.report["scores"] if run.report is not None else {}
    ordered = sorted(scores, key=lambda key: key != comparison.main_score)
    columns = [*(column_of_score(key, scores[key]) for key in ordered), *LOSSES, *COSTS]
    return [column for column in columns if any(column.read(run) is not None for run in comparison.runs)]


def column_of_score(key: str, score: dict[str, Any]) -> Column:
    """Make a score a column.

    Args:
        key: The score's name in reports.
        score: What [`zoo.tasks.Score`][] says.

    Returns:
        The column.
    """
    better = 1 if score.get("higher_is_better", True) else -1
    return Column(key, score["name"], str(score["signature"]), of_score(key), number(2), better, "Quality")
