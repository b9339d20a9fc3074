"""What training and evaluation left with a checkpoint, as a model card tells it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULT = "result.json"
"""Where `zoo compare` writes what came out of a run: beside the folder of the checkpoint."""

EVALUATIONS = "evaluations.json"
"""Where `zoo evaluate --save` writes: in the checkpoint's folder, one entry for every task and data."""

RECIPE = {
    "task": "Task",
    "seed": "Seed",
    "device": "Device",
    "train_examples": "Training examples",
    "steps": "Updates",
    "epochs": "Epochs",
    "train_tokens": "Training tokens",
    "train_seconds": "Seconds of training",
    "train_loss": "Training loss",
}
"""What a card tells of a training report, and how it calls it."""

NOT_KEPT = ("outputs", "seconds")
"""What of an evaluation is no property of the checkpoint."""

LARGE = 1000
DATASET = "held-out examples"


def find_report(folder: Path) -> Mapping[str, Any]:
    """Find the numbers of the run that made a checkpoint.

    Args:
        folder: The checkpoint.

    Returns:
        What the training report says; nothing where there is none.
    """
    for file in (folder / RESULT, folder.resolve().parent / RESULT):
        try:
            report = json.loads(file.read_text(encoding="utf-8"))["report"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if isinstance(report, dict):
            return report
    return {}


def recipe_of(report: Mapping[str, Any]) -> dict[str, str]:
    """Tell how a checkpoint was trained.

    Args:
        report: The training report.

    Returns:
        Names and values for the card.
    """
    return {name: _number(report[key]) for key, name in RECIPE.items() if report.get(key) is not None}


def results_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tell how well a checkpoint did at the end of its training.

    Args:
        report: The training report.

    Returns:
        Evaluation results with the fields of huggingface_hub's `EvalResult`.
    """
    examples = f"{report.get('heldout_examples', '')} {DATASET}".strip()
    return _results(report.get("task"), examples, report.get("scores"), report.get("heldout_loss"))


def keep_evaluation(folder: Path, evaluation: Mapping[str, Any], data: str) -> Path:
    """Write the numbers of an evaluation into the checkpoint's folder, where its model card finds them.

    Args:
        folder: The checkpoint.
        evaluation: The numbers, as `zoo.evaluate(...).to_dict()` gives them. Earlier ones of the same task and data
            are replaced.
        data: What the examples are called.

    Returns:
        The file.
    """
    kept = {key: value for key, value in evaluation.items() if key not in NOT_KEPT}
    others = [
        earlier
        for earlier in find_evaluations(folder)
        if (earlier.get("task"), earlier.get("data")) != (kept.get("task"), data)
    ]
    file = folder / EVALUATIONS
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    content = json.dumps({"evaluations": [*others, {"data": data, **kept}]}, indent=2, ensure_ascii=False)
    temporary.write_text(content + "\n", encoding="utf-8")
    os.replace(temporary, file)
    return file


def find_evaluations(folder: Path) -> list[Mapping[str, Any]]:
    """Find what `zoo evaluate --save` wrote.

    Args:
        folder: The checkpoint.

    Returns:
        The evaluations, none where there is no such file.
    """
    try:
        found = json.loads((folder / EVALUATIONS).read_text(encoding="utf-8"))["evaluations"]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def find_results(folder: Path) -> list[dict[str, Any]]:
    """Tell how well a checkpoint does: by `zoo evaluate --save`, or else by the end of its training.

    Args:
        folder: The checkpoint.

    Returns:
        Evaluation results with the fields of huggingface_hub's `EvalResult`.
    """
    evaluated = [
        result
        for entry in find_evaluations(folder)
        for result in _results(
            entry.get("task"),
            f"{entry.get('data')}, {entry.get('examples')} examples",
            entry.get("scores"),
            entry.get("loss"),
            # The Hub's client tells data apart by this field and not by their names.
            dataset_config=str(entry.get("data")),
        )
    ]
    return evaluated or results_of(find_report(folder))


def _results(task: Any, dataset: str, scores: Any, loss: Any, **more: str) -> list[dict[str, Any]]:
    about = {"task_type": str(task or "other"), "dataset_type": "custom", "dataset_name": dataset, **more}
    results = []
    for key, score in (scores or {}).items():
        result = {**about, "metric_type": key, "metric_value": round(float(score["value"]), 4)}
        result["metric_name"] = str(score.get("name", key))
        if score.get("signature"):
            result["metric_config"] = str(score["signature"])
        if score.get("interval"):
            result["metric_args"] = {"interval_95": [round(float(bound), 4) for bound in score["interval"]]}
        results.append(result)
    if loss is not None:
        named = {"metric_type": "loss", "metric_name": "Loss, nats per token"}
        results.append({**about, **named, "metric_value": round(float(loss), 4)})
    return results


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < LARGE else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
