"""Scores of the weights that ship, in the form of other results.

The numbers are in one place, next to the weights (`evaluations.json`). results/weights.csv is written from there, by
`python scripts/bench/results.py`, and a test compares the two.
"""

from __future__ import annotations

from zoo.building.weights.built_in import read_definitions
from zoo.registry import Weights, find_weights

from .definition import FOLDER
from .rows import Row

RESULTS = FOLDER / "results" / "weights.csv"

VERSION = 1  # Of what the columns mean


def rows_of_weights() -> list[Row]:
    rows = [row_of_weights(find_weights(name)) for name in read_definitions("shipped")]
    return sorted(rows, key=lambda row: row.key)


def row_of_weights(weights: Weights) -> Row:
    """Make the row of weights: held-out scores with the bounds of their 95 % intervals."""
    values = {"parameters": float(weights.num_parameters or 0)}
    for key, score in weights.scores.items():
        column = "heldout_loss" if key == "loss" else key
        values[column] = score.value
        if score.interval is not None:
            values[f"{column}_low"], values[f"{column}_high"] = score.interval
    return Row(
        version=VERSION,
        condition=weights.recipe or "",
        variant=weights.name,
        seed=weights.seed or 0,
        settings={"command": weights.command_line},
        values=values,
        zoo=weights.versions.get("transformer-zoo", ""),
        torch=weights.versions.get("torch", ""),
        transformers=weights.versions.get("transformers", ""),
    )
