"""Records of training and evaluation in a checkpoint, for its model card."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.base.files import read_mapping, without_folders, write_json
from zoo.base.folders import EVALUATIONS_FILE, MODEL_FILE, RECORD_FILE, RESULT_FILE
from zoo.base.manifest import recorded, weights_of
from zoo.registry.names import is_number

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
"""Fields of a training report in a card, and their names there."""

SECTIONS = {
    "task_options": "Task options",
    "tokenizer": "Tokenizer",
    "model": "Model settings",
    "arguments": "Training arguments",
    "generation": "Generation",
}
"""Fields of a recipe in a card, and their names there."""

NUMBERS = ("report", "checkpoint")
"""Entries of a record with the numbers of a run: at its end, and where a model was saved before."""

NOT_KEPT = ("outputs", "seconds")  # Fields of an evaluation that are no properties of the checkpoint

SCALAR = (str, int, float)
LARGE = 1000
DATASET = "held-out examples"


def find_result(folder: Path) -> Mapping[str, Any]:
    """Find what the run that made a checkpoint has recorded: in it, or next to it in a comparison.

    Numbers of other weights, which were saved over those of the run, are left out.
    """
    above = folder.resolve().parent
    is_of_another = (above / MODEL_FILE).is_file()
    for file in (folder / RESULT_FILE, *([] if is_of_another else [above / RESULT_FILE])):
        result = read_mapping(file)
        if numbers := [found for name in NUMBERS if (found := _mapping(result.get(name)))]:
            return result if all(is_of_weights(folder, one) for one in numbers) else run_of(result)
    return {}


def is_of_weights(folder: Path, numbers: Mapping[str, Any]) -> bool:
    """Whether numbers belong to the weights in a folder, as numbers without a recorded hash are taken to."""
    return numbers.get("weights") in (None, weights_of(folder))


def run_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run, without its numbers."""
    return {name: value for name, value in result.items() if name not in NUMBERS}


def recipe_of(result: Mapping[str, Any]) -> dict[str, str]:
    report, recipe = _mapping(result.get("report")), _mapping(result.get("recipe"))
    sections = {name: _settings(recipe.get(section)) for section, name in SECTIONS.items()}
    return {
        **{name: _number(report[key]) for key, name in RECIPE.items() if isinstance(report.get(key), SCALAR)},
        **_data(result),
        **{name: settings for name, settings in sections.items() if settings},
    }


def without_places(result: Mapping[str, Any]) -> dict[str, Any]:
    """Strip local paths."""
    kept: dict[str, Any] = json.loads(json.dumps(result))
    source = _mapping(_mapping(kept.get("data")).get("source"))
    tokenizer = _mapping(_mapping(kept.get("recipe")).get("tokenizer"))
    for section, names in ((source, ("data", "heldout")), (tokenizer, ("folder",))):
        section.update({name: _file_name(section[name]) for name in names if section.get(name)})
    return kept


def results_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Scores of a checkpoint at the end of its training."""
    examples = f"{report.get('heldout_examples', '')} {DATASET}".strip()
    return _results(report.get("task"), examples, report.get("scores"), report.get("heldout_loss"))


def keep_evaluation(folder: Path, evaluation: Mapping[str, Any], data: str) -> Path:
    """Write the numbers of an evaluation into the checkpoint's folder, where its model card finds them."""
    kept = {"data": data} | {key: value for key, value in evaluation.items() if key not in (*NOT_KEPT, "data")}
    kept["weights"] = weights_of(folder)
    same = (kept.get("task"), data)
    others = [one for one in find_evaluations(folder) if (one.get("task"), one.get("data")) != same]
    with recorded(folder):
        return write_json(folder / EVALUATIONS_FILE, {"evaluations": [*others, kept]})


def recorded_license(folder: Path) -> str | None:
    found = _recorded(folder, "license")
    return None if found is None else found.lower()


def recorded_limits(folder: Path) -> tuple[str, ...]:
    """Find what weights by name are known to get wrong."""
    found = _recorded(folder, "limits")
    return (found,) if found else ()


def recorded_origin(folder: Path) -> dict[str, str]:
    """Find the data and the tokenizer of a checkpoint: of weights by name as recorded, else of its training."""
    trained = recipe_of(find_result(folder))
    found = {
        "Training data": _recorded(folder, "data") or trained.get("Data"),
        "Licence of the training data": _recorded(folder, "data_license"),
        "Tokenizer": _recorded(folder, "tokenizer") or trained.get("Tokenizer"),
    }
    return {name: value for name, value in found.items() if value}


def _recorded(folder: Path, field: str) -> str | None:
    found = read_mapping(folder / RECORD_FILE).get(field)
    return found if isinstance(found, str) else None


def find_evaluations(folder: Path) -> list[Mapping[str, Any]]:
    found = read_mapping(folder / EVALUATIONS_FILE).get("evaluations")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def find_results(folder: Path) -> list[dict[str, Any]]:
    """Scores of a checkpoint: by `zoo evaluate --save`, or else by the end of its training."""
    evaluated: list[dict[str, Any]] = []
    for entry in find_evaluations(folder):
        if is_of_weights(folder, entry):
            data = str(entry.get("data"))  # by which, and not by names, the Hub's client distinguishes data
            examples = f"{data}, {entry.get('examples')} examples"
            about = (entry.get("task"), examples, entry.get("scores"), entry.get("loss"))
            evaluated += _results(*about, dataset_config=data)
    return evaluated or results_of(_mapping(find_result(folder).get("report")))


def _results(task: Any, dataset: str, scores: Any, loss: Any, **more: str) -> list[dict[str, Any]]:
    about = {"task_type": str(task or "other"), "dataset_type": "custom", "dataset_name": dataset, **more}
    results = []
    for key, score in _mapping(scores).items():
        score = _mapping(score)
        if not is_number(score.get("value")):
            continue
        result = {**about, "metric_type": str(key), "metric_value": round(float(score["value"]), 4)}
        result["metric_name"] = str(score.get("name", key))
        if score.get("signature"):
            result["metric_config"] = str(score["signature"])
        interval = score.get("interval")
        if isinstance(interval, (list, tuple)) and interval and all(map(is_number, interval)):
            result["metric_args"] = {"interval_95": [round(float(bound), 4) for bound in interval]}
        results.append(result)
    if is_number(loss):
        named = {"metric_type": "loss", "metric_name": "Loss, nats per label"}
        results.append({**about, **named, "metric_value": round(float(loss), 4)})
    return results


def _mapping(value: Any) -> dict[str, Any]:
    """A record without values of wrong types: files may have been written by hand."""
    return value if isinstance(value, dict) else {}


def _settings(section: Any) -> str:
    if not isinstance(section, dict):
        return ""
    shown = {**section, "folder": _file_name(section["folder"])} if "folder" in section else section
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _data(result: Mapping[str, Any]) -> dict[str, str]:
    data = _mapping(result.get("data"))
    source = _mapping(data.get("source"))
    columns = source.get("columns")
    rows = {
        "Data": _file_name(source.get("data")),
        "Held-out data": _file_name(source.get("heldout")),
        "Columns": ", ".join(map(str, columns)) if isinstance(columns, list) else "",
        "SHA-256 of the training examples": _mapping(data.get("train")).get("sha256"),
        "SHA-256 of the held-out examples": _mapping(data.get("heldout")).get("sha256"),
    }
    return {name: str(value) for name, value in rows.items() if value}


def _file_name(place: Any) -> str:
    return without_folders(str(place or ""))


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < LARGE else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
