"""Heat maps (a panel per head, a row of panels per layer, as in Dive into Deep Learning), pages, position tables."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zoo.base.errors import OutputExistsError
from zoo.base.files import write_file
from zoo.converters.errors import require
from zoo.models import Position
from zoo.models.stack import stacks_of
from zoo.models.validation import require_at_least

from .attending import AttentionMap, AttentionMaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAGE = "attention.html"  # The interactive page's file


def save_attention(maps: AttentionMaps, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write a picture of each kind of attention, and the interactive page."""
    place = Path(folder)
    pictures = {place / f"{one.kind}.png": one for one in maps.maps}
    page = place / PAGE
    taken = [file for file in (*pictures, page) if file.exists()]
    if taken and not force:
        raise OutputExistsError(
            f"{taken[0]} is there already; choose another folder, or force its replacement (--force)"
        )
    for file, one in pictures.items():
        picture = io.BytesIO()
        attention_figure(one).savefig(picture, format="png")
        write_file(file, picture.getvalue())
    write_file(page, attention_page(maps))
    return [*pictures, page]


SCALE = 10_000  # Weights are written as whole numbers of this part of one: four decimals


def attention_page(maps: AttentionMaps) -> str:
    """A page (HTML with its style and its script) on which every layer and head can be looked at."""
    data = [
        {
            "kind": one.kind,
            "title": one.title,
            "queries": one.queries,
            "keys": one.keys,
            "layers": one.layers,
            "weights": np.rint(one.weights * SCALE).astype(int).reshape(*one.weights.shape[:2], -1).tolist(),
        }
        for one in maps.maps
    ]
    template = files(__package__).joinpath("attention.html.jinja").read_text(encoding="utf-8")
    # In a script, only these could end it or begin something else.
    script_data = json.dumps({"scale": SCALE, "maps": data}, separators=(",", ":")).replace("<", "\\u003c")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        name=maps.name, source=maps.source, output=maps.output, data=script_data
    )


PANEL, TOKEN = 1.5, 0.17  # Inches: the least width of a panel, and the room that a token's name needs
LARGEST = 48.0  # Inches: no picture is wider or higher


def new_figure(width: float, height: float) -> Figure:
    """Make an empty picture, which no window shows."""
    figures: Any = require("inside", "matplotlib.figure")
    return figures.Figure(figsize=(width, height), layout="constrained", dpi=150)


def attention_figure(attention: AttentionMap) -> Figure:
    """Draw one kind of attention: layers row by row, heads column by column, queries down, keys across.

    This is the arrangement of Zhang et al. 2021, Dive into Deep Learning, section 11.7, except that all panels have one
    scale of colours, so that one colour bar holds for all of them, and that tokens have their names.
    """
    num_layers, num_heads, num_queries, num_keys = attention.weights.shape
    width = min(max(PANEL, TOKEN * num_keys) * num_heads + 2.0, LARGEST)
    height = min(max(PANEL, TOKEN * num_queries) * num_layers + 1.6, LARGEST)
    figure = new_figure(width, height)
    axes = figure.subplots(num_layers, num_heads, sharex=True, sharey=True, squeeze=False)
    highest = float(attention.weights.max())
    for (layer, head), panel in np.ndenumerate(axes):
        image = panel.imshow(attention.weights[layer, head], cmap="Reds", vmin=0.0, vmax=highest, aspect="auto")
        panel.set_title(f"Head {head + 1}", fontsize=9)
        if layer == num_layers - 1:
            panel.set_xlabel("Key positions")
        if head == 0:
            panel.set_ylabel("Query positions")
        if head == num_heads - 1:
            label = f"Layer {attention.layers[layer]}"
            panel.annotate(label, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center", fontsize=9)
        panel.set_xticks(range(num_keys), [*map(plain, attention.keys)], rotation=90, fontsize=7)
        panel.set_yticks(range(num_queries), [*map(plain, attention.queries)], fontsize=7)
    figure.colorbar(image, ax=axes, shrink=0.6)
    figure.suptitle(attention.title)
    return figure


def plain(token: str) -> str:
    """Keep matplotlib from reading a token as a formula."""
    return token.replace("$", r"\$")


LABELS = {
    "added": ("Feature", "Position"),
    "rotation": ("Feature of a head", "Position"),
    "bias": ("Key position", "Query position"),
}
"""Kinds of tables of position encodings, with the meanings of columns and rows."""


@dataclass(frozen=True)
class PositionTable:
    """Tables that a position encoding uses.

    Attributes:
        stack: "encoder" or "decoder".
        encoding: The encoding's name, e.g. "rotary", with the type of its layers where several types differ.
        kind: "added" for what is added to the embeddings (Vaswani et al. 2017, section 3.5; Gehring et al. 2017),
            "rotation" for cosines and sines on queries and keys (Su et al. 2021, section 3.2), "bias" for what is added
            to the scores of each head (Press et al. 2021; Raffel et al. 2020, section 2.1).
        names: A name a table: a head's for biases.
        values: *Shape:* (num_tables, num_rows, num_columns)
    """

    stack: str
    encoding: str
    kind: str
    names: tuple[str, ...]
    values: NDArray[np.float32]

    def to_records(self) -> list[dict[str, Any]]:
        """Write it as plain data, a record a number, e.g. for `pandas.DataFrame`."""
        return [
            {
                "stack": self.stack,
                "encoding": self.encoding,
                "kind": self.kind,
                "table": self.names[table],
                "row": row,
                "column": column,
                "value": float(value),
            }
            for (table, row, column), value in np.ndenumerate(self.values)
        ]

    def figure(self) -> Figure:
        """Draw the tables, a panel each, blue below zero and red above."""
        columns = min(4, len(self.values))
        rows = -(-len(self.values) // columns)
        side = 4.2 if len(self.values) == 1 else 2.4
        figure = new_figure(side * columns + 1.2, side * 0.85 * rows + 0.6)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        highest = float(np.abs(self.values).max()) or 1.0
        for panel in axes.flat[len(self.values) :]:
            panel.set_visible(False)
        for panel, table, title in zip(axes.flat, self.values, self.names, strict=False):
            image = panel.imshow(table, "RdBu_r", aspect="auto", interpolation="nearest", vmin=-highest, vmax=highest)
            panel.set_title(title, fontsize=9)
        across, down = LABELS[self.kind]
        for panel in axes[-1]:
            panel.set_xlabel(across)
        for panel in axes[:, 0]:
            panel.set_ylabel(down)
        figure.colorbar(image, ax=axes, shrink=0.6)
        figure.suptitle(f"{self.encoding} positions of the {self.stack}")
        return figure


@torch.no_grad()
def position_tables(model: PreTrainedModel, length: int = 64) -> list[PositionTable]:
    """Read off a model what its position encodings do, for any kind of them.

    Args:
        length: For how many positions, at most: a learned table may have fewer.

    Returns:
        The tables of each stack; none for a stack without positions.
    """
    require_at_least(1, length=length)
    found = []
    for side, stack in stacks_of(model).items():
        encoding: Position = stack.position
        rows = length if encoding.max_length is None else min(length, encoding.max_length)
        ids = torch.arange(rows, device=model.device)
        zeros = torch.zeros(1, rows, stack.config.embedding_width, device=model.device, dtype=model.dtype)
        name = stack.config.position
        tables: list[tuple[str, str, tuple[str, ...], Tensor]] = []
        if type(encoding).embed is not Position.embed:
            tables.append((name, "added", ("added to the embeddings",), encoding.embed(zeros, ids[None])))
        placed = dict.fromkeys(filter(None, stack.config.placed_types_of_layers()))
        rotations = encoding.rotations(zeros, ids[None], placed)
        by_type = {id(one): (type_, one) for type_, one in rotations.items() if one is not None}.values()
        for type_, one in by_type:
            label = f"{name} ({type_})" if len(by_type) > 1 else name
            tables.append((label, "rotation", ("cosines", "sines"), torch.cat(one)))
        if (bias := encoding.bias(ids, ids)) is not None:
            tables.append((name, "bias", tuple(f"Head {head + 1}" for head in range(bias.shape[1])), bias[0]))
        found += [
            PositionTable(side, label, kind, names, values.float().cpu().numpy())
            for label, kind, names, values in tables
        ]
    return found
