"""Registers the weights that ship with the zoo, and well-known checkpoints of transformers' own classes on the Hub."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from zoo.base.errors import CheckpointError
from zoo.registry import Weights, register_weights

from .records import read_record

HERE = Path(__file__).parent
SHIPPED = HERE / "shipped"
"""The folders of the weights that ship, each called like its weights."""

MADE = ("versions", "num_parameters", "dtype", "scores", "fingerprint", "limits", "parent", "files")
"""Facts that records have of what was made; all others come from definitions."""


def read_definitions(kind: str) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((HERE / f"{kind}.yaml").read_text(encoding="utf-8"))


def definition_of(name: str, definition: dict[str, Any]) -> Weights:
    fields = {key: value for key, value in definition.items() if key != "train"}
    arguments = tuple(str(definition.get("train", "")).split())
    command = ("zoo", "train", *arguments) if arguments else ()
    recipe = arguments[arguments.index("--recipe") + 1] if "--recipe" in arguments else None
    return Weights(**{"source": str(SHIPPED / name), "recipe": recipe, **fields}, name=name, command=command)


for _name, _definition in read_definitions("shipped").items():
    _weights = definition_of(_name, _definition)
    with suppress(CheckpointError):  # which is reported when the weights are used
        _record = read_record(SHIPPED / _name)
        _weights = replace(_weights, **{fact: getattr(_record, fact) for fact in MADE})
    register_weights(_weights)
for _name, _definition in read_definitions("native").items():
    register_weights(definition_of(_name, _definition))
