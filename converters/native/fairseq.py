"""Keys of layers and sinusoidal positions of classes that come from fairseq; positions are read as tables."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..symmetries.base import State

OFFSET = 2
"""Rows of position tables before the first token's, which padding once had."""

SAME_TABLE = 1e-4
"""How far a table may be from what is computed, which some machines round differently."""


def fairseq_table(rows: int, width: int, first: int, padding: int | None) -> Tensor:
    """Sines, then cosines, of wavelengths from 2 pi to 20000 pi, (rows, width), with a row of zeros for padding."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    phases = torch.arange(first, first + rows).float()[:, None] * frequencies
    table = torch.cat([phases.sin(), phases.cos()], dim=1)
    if padding is not None and first <= padding < first + rows:
        table[padding - first] = 0.0
    return torch.cat([table, table.new_zeros(rows, width % 2)], dim=1)


def table_obstacles(state: State, first: int, padding: int | None) -> list[str]:
    """Obstacles for a model with other positions than these."""
    tables = [value for name, value in state.items() if name.endswith("position.weight")]
    same = tables and all(
        (table.float() - fairseq_table(table.shape[0], table.shape[1], first, padding).to(table.device)).abs().max()
        < SAME_TABLE
        for table in tables
    )
    return [] if same else ["its positions are not the sines and cosines that this class computes"]


def fairseq_layer(slot: str) -> dict[str, str]:
    """The keys of self-attention and of the feed-forward network in a layer, with their norms before or after them."""
    return {
        **{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkv"},
        "self_attn.o_proj": "self_attn.out_proj",
        f"self_attn_residual.{slot}": "self_attn_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
        f"mlp_residual.{slot}": "final_layer_norm",
    }
