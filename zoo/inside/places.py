"""Tables of a model's position encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zoo.models import Position
from zoo.models.stack import ZooStack

from .heatmaps import table_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        encoding: The encoding's name, e.g. "rotary".
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
        """Write it as plain data, e.g. for `pandas.DataFrame`.

        Returns:
            A record a number.
        """
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
        """Draw the tables.

        Returns:
            The picture, blue below zero and red above.
        """
        across, down = LABELS[self.kind]
        picture = table_figure(self.values, self.names, xlabel=across, ylabel=down)
        picture.suptitle(f"{self.encoding} positions of the {self.stack}")
        return picture


@torch.no_grad()
def position_tables(model: PreTrainedModel, length: int = 64) -> list[PositionTable]:
    """Read off a model what its position encodings do, whichever they are.

    Args:
        length: For how many positions, at most: a learned table may have fewer.

    Returns:
        The tables of each stack; none for a stack without positions.
    """
    found = []
    for stack in (module for module in model.modules() if isinstance(module, ZooStack)):
        encoding: Position = stack.position
        rows = length if encoding.max_length is None else min(length, encoding.max_length)
        ids = torch.arange(rows, device=model.device)
        zeros = torch.zeros(1, rows, stack.config.hidden_size, device=model.device, dtype=model.dtype)
        tables: dict[str, tuple[tuple[str, ...], Tensor]] = {}
        if type(encoding).embed is not Position.embed:
            tables["added"] = (("added to the embeddings",), encoding.embed(zeros, ids[None]))
        if (rotation := encoding.rotation(zeros, ids[None])) is not None:
            tables["rotation"] = (("cosines", "sines"), torch.cat(rotation))
        if (bias := encoding.bias(ids, ids)) is not None:
            tables["bias"] = (tuple(f"Head {head + 1}" for head in range(bias.shape[1])), bias[0])
        name = "decoder" if stack.config.is_decoder else "encoder"
        found += [
            PositionTable(name, stack.config.position, kind, names, values.float().cpu().numpy())
            for kind, (names, values) in tables.items()
        ]
    return found
