"""Attention as one web page that needs nothing from elsewhere."""

from __future__ import annotations

import json
from importlib.resources import files

import jinja2
import numpy as np

from .attending import AttentionMaps

SCALE = 10_000
"""Weights are written as whole numbers of this part of one: four decimals."""


def attention_page(maps: AttentionMaps) -> str:
    """Write a page on which every layer and head can be looked at, by pointer and by keyboard.

    Returns:
        HTML with its style and its script inside.
    """
    data = [
        {
            "kind": one.kind,
            "title": one.title,
            "queries": one.queries,
            "keys": one.keys,
            "weights": np.rint(one.weights * SCALE).astype(int).reshape(*one.weights.shape[:2], -1).tolist(),
        }
        for one in maps.maps
    ]
    template = files(__package__).joinpath("attention.html.jinja").read_text(encoding="utf-8")
    # In a script, nothing but these could end it or begin something else.
    script_data = json.dumps({"scale": SCALE, "maps": data}, separators=(",", ":")).replace("<", "\\u003c")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        name=maps.name, source=maps.source, output=maps.output, data=script_data
    )
