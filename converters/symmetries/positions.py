"""Symmetries of position encodings."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import torch

from zoo.models import POSITIONS, ZooConfig
from zoo.registry import Task

from ..transforms import evens_then_odds, pairs_to_halves, permute
from .base import (
    EMBEDDING_NORM,
    FINAL_NORM,
    LAYER_NORMS,
    TABLES,
    WRITERS,
    State,
    Symmetry,
    change,
    head_readers,
    layer_readers,
    stacks,
    symmetry,
)


@symmetry
class PermuteResidual(Symmetry):
    """Reorder the channels of the residual stream, so that alternating sines and cosines become two halves.

    Whatever reads or writes the stream is permuted; the inner dimensions of heads and feed-forwards stay.
    """

    name = "permute-residual"
    field = "position"
    rank = 120
    summary = "channels of the residual stream reordered: sines first, then cosines"

    def settings(self, config: ZooConfig, wanted: Any, task: str) -> dict[str, Any] | None:
        """From "sinusoidal" to "sinusoidal-halves". Hidden states are permuted, so only heads make up for it."""
        if (config.position, wanted) != ("sinusoidal", "sinusoidal-halves") or task == Task.FEATURE_EXTRACTION:
            return None
        return {"position": wanted} if config.hidden_size % 2 == 0 else None

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        """Permute columns of readers, rows of writers, norms and tables."""
        order = evens_then_odds(config.hidden_size)
        columns, rows = permute(order), permute(order, dim=0)
        state = change(state, [*layer_readers(), *head_readers(config), TABLES], columns)
        state = change(state, [WRITERS, LAYER_NORMS, EMBEDDING_NORM, FINAL_NORM, r"_residual\.scale\.weight$"], rows)
        if config.lm_head_transform:
            # The output projection may be tied to the permuted embedding, so what it reads is permuted as well.
            state = change(state, [r"^transform\.(dense|norm)\."], rows)
            state = change(state, [r"^lm_head\.weight$"], columns)
        return state


@symmetry
class StoreTable(Symmetry):
    """Keep the rows of a computed encoding, or zeros for none, as if they had been learned."""

    name = "store-table"
    field = "position"
    rank = 120
    summary = "positions stored as a table of max_position_embeddings rows"

    def settings(self, config: ZooConfig, wanted: Any, task: str) -> dict[str, Any] | None:
        """From either sinusoidal layout or "none" to "learned"."""
        computed = ("sinusoidal", "sinusoidal-halves", "none")
        return {"position": "learned"} if wanted == "learned" and config.position in computed else None

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        """Add a table to every stack."""
        added = {}
        positions = torch.arange(config.max_position_embeddings)[None]
        for prefix in stacks(config):
            embedding = state[f"{prefix}embed_tokens.weight"]
            zeros = torch.zeros(1, len(positions[0]), config.embedding_width)
            rows = POSITIONS.get(config.position)(config.embedding_config()).embed(zeros, positions)[0]
            added[f"{prefix}position.weight"] = rows.to(embedding.dtype)
        return {**state, **added}


class RotaryLayout(Symmetry):
    """Reorder the columns of rotated heads, so that other columns form pairs."""

    field = "position"
    rank = 120
    layouts: ClassVar[tuple[str, str]]  # The position before and after

    def settings(self, config: ZooConfig, wanted: Any, task: str) -> dict[str, Any] | None:
        """From one layout to the other, unless queries are normalised after their projection."""
        return {"position": wanted} if (config.position, wanted) == self.layouts and config.qk_norm is None else None

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        """Permute rows of the query and key projections of self-attention."""
        factor = config.rope_parameters.get("partial_rotary_factor", 1.0)
        for prefix, stack in stacks(config).items():
            rotary_dim = int(stack.head_dim * factor)
            for projection, heads in (("q", stack.num_attention_heads), ("k", stack.num_key_value_heads)):
                pattern = rf"^{re.escape(prefix)}.*self_attn\.{projection}_proj\.(weight|bias)$"
                halves = pairs_to_halves(heads, rotary_dim)
                state = change(state, pattern, halves if wanted == "rotary" else halves.inverse)
        return state


@symmetry
class SplitRotaryHalves(RotaryLayout):
    """Neighbouring pairs become pairs half a head apart."""

    name = "split-rotary-halves"
    summary = "columns of queries and keys reordered for the half-split rotary layout"
    layouts = ("rotary-interleaved", "rotary")


@symmetry
class InterleaveRotaryPairs(RotaryLayout):
    """Pairs half a head apart become neighbours."""

    name = "interleave-rotary-pairs"
    summary = "columns of queries and keys reordered for the interleaved rotary layout"
    layouts = ("rotary", "rotary-interleaved")
