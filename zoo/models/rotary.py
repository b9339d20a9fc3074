"""Rotary position embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from .embedding import Position, Rotation
from .parts import POSITIONS

if TYPE_CHECKING:
    from .configuration import ZooConfig


class PartialRotaryEmbedding(LlamaRotaryEmbedding):
    """transformers' rotary tables with every scaling it knows, for a leading part of each head.

    Args:
        config: Supplies `rope_parameters`, `head_dim` and `max_position_embeddings`.
    """

    @staticmethod
    def compute_default_rope_parameters(config: ZooConfig, *args: object, **kwargs: object) -> tuple[Tensor, float]:
        """Frequencies without scaling.

        Args:
            config: Supplies `rope_parameters` (`rope_theta`, `partial_rotary_factor`) and `head_dim`.

        Returns:
            Frequencies, *Shape:* (rotary_dim / 2,), and the factor on cosines and sines.
        """
        rotary_dim = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim
        return config.rope_parameters["rope_theta"] ** -exponents, 1.0


@POSITIONS.register("rotary", aliases=("rope",))
class RotaryPosition(Position):
    """Rotary embeddings in the half-split layout (Su et al. 2021, RoFormer, section 3.2; GPT-NeoX, Llama).

    Column j of a head is paired with column j + rotary_dim / 2. Scalings (linear, dynamic, yarn, llama3, ...) are
    chosen in `rope_parameters` and come from transformers.

    Args:
        config: Supplies `rope_parameters` and `head_dim`.
    """

    uses_rope_parameters = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.rotary_emb = PartialRotaryEmbedding(config)

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> Rotation:
        """Cosines and sines of these positions.

        Args:
            hidden_states: Gives the dtype. *Shape:* (batch_size, seq_len, hidden_size)
            position_ids: *Shape:* (batch_size or 1, seq_len)

        Returns:
            Two tensors. *Shape:* (batch_size or 1, seq_len, rotary_dim)
        """
        return self.rotary_emb(hidden_states, position_ids=position_ids)

    @staticmethod
    def rotate(query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        """Rotate pairs of features by position. Shapes as in the base class."""
        cos, sin = rotation
        rotary_dim = cos.shape[-1]
        if rotary_dim == query.shape[-1]:
            return apply_rotary_pos_emb(query, key, cos, sin)
        rotated = apply_rotary_pos_emb(query[..., :rotary_dim], key[..., :rotary_dim], cos, sin)
        return (
            torch.cat([rotated[0], query[..., rotary_dim:]], dim=-1),
            torch.cat([rotated[1], key[..., rotary_dim:]], dim=-1),
        )


@POSITIONS.register("rotary-interleaved")
class InterleavedRotaryPosition(RotaryPosition):
    """Rotary embeddings in the paper's own layout: column 2j is paired with column 2j + 1 (RoFormer, GPT-J)."""

    @staticmethod
    def rotate(query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        """Rotate neighbouring features by position. Shapes as in the base class."""
        cos, sin = (table[..., : table.shape[-1] // 2].unsqueeze(1) for table in rotation)
        return _turned(query, cos, sin), _turned(key, cos, sin)


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of neighbours among the first columns of each head.

    Args:
        heads: *Shape:* (batch_size, num_heads, seq_len, head_dim)
        cos: Of the angle of every pair. *Shape:* (batch_size or 1, 1, seq_len, rotary_dim / 2)
        sin: *Shape:* as cos.

    Returns:
        *Shape:* as heads.
    """
    rotary_dim = 2 * cos.shape[-1]
    even, odd = heads[..., :rotary_dim].unflatten(-1, (-1, 2)).unbind(dim=-1)
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return turned if rotary_dim == heads.shape[-1] else torch.cat([turned, heads[..., rotary_dim:]], dim=-1)
