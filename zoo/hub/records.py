"""What training left beside a checkpoint, as a model card tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULT = "result.json"
"""Where `zoo compare` writes what came out of a run: beside the folder of the checkpoint."""

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
    """Tell how well a checkpoint does.

    Args:
        report: The training report.

    Returns:
        Evaluation results with the fields of huggingface_hub's `EvalResult`.
    """
    task = str(report.get("task") or "other")
    about = {
        "task_type": task,
        "dataset_type": "custom",
        "dataset_name": f"{report.get('heldout_examples', '')} {DATASET}".strip(),
    }
    results = [
        {
            **about,
            "metric_type": key,
            "metric_value": round(float(score["value"]), 4),
            "metric_name": str(score.get("name", key)),
            **({"metric_config": str(score["signature"])} if score.get("signature") else {}),
        }
        for key, score in (report.get("scores") or {}).items()
    ]
    if report.get("heldout_loss") is not None:
        loss = round(float(report["heldout_loss"]), 4)
        results.append({**about, "metric_type": "loss", "metric_value": loss, "metric_name": "Loss, nats per token"})
    return results


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < LARGE else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
