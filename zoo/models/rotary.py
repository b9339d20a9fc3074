"""Rotary position embeddings."""

import copy
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from .configuration import ZooConfig
from .embedding import Position, Rotation
from .fields import LAYER_TYPES
from .parts import ATTENTIONS
from .precision import PreciseBuffers


class PartialRotaryEmbedding(PreciseBuffers, LlamaRotaryEmbedding):
    """transformers' rotary tables with every scaling, for a leading part of heads, by each sequence's own length."""

    attention_scaling: float

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.changes_after = RotaryPosition.changes_after(config)

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> Rotation:
        """Cosines and sines. Shapes as for [`RotaryPosition.rotation`][zoo.models.RotaryPosition.rotation]."""
        if self.changes_after is None:
            return super().forward(x, position_ids)
        angles = (position_ids[..., None].float() * self.frequencies(sequence_lengths(position_ids))).repeat(1, 1, 2)
        return (angles.cos() * self.attention_scaling).to(x.dtype), (angles.sin() * self.attention_scaling).to(x.dtype)

    def frequencies(self, lengths: Tensor) -> Tensor:
        """Frequencies of sequences by their lengths. *Shape:* (...), then (..., rotary_dim / 2)."""
        compute, device = ROPE_INIT_FUNCTIONS[self.rope_type], lengths.device
        if self.rope_type == "dynamic":
            return compute(self.config, device, seq_len=lengths[..., None])[0]
        threshold = int(self.changes_after or 0)
        short, long = (compute(self.config, device, seq_len=length)[0] for length in (threshold, threshold + 1))
        return torch.where(lengths[..., None] > threshold, long, short)

    @staticmethod
    def compute_default_rope_parameters(config: ZooConfig, *args: object, **kwargs: object) -> tuple[Tensor, float]:
        """Frequencies without scaling, (rotary_dim / 2,), and the factor 1 on cosines and sines."""
        rotary_dim = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim
        return config.rope_parameters["rope_theta"] ** -exponents, 1.0


def sequence_lengths(position_ids: Tensor) -> Tensor:
    """Length of each token's sequence; several in a row begin where positions fall or leap, and padding repeats one."""
    sequences = (position_ids.diff(dim=-1, prepend=position_ids[..., :1]) // 2 != 0).cumsum(dim=-1)
    last = torch.zeros_like(position_ids).scatter_reduce(-1, sequences, position_ids, "amax")
    return last.gather(-1, sequences) + 1


class RotaryPosition(Position):
    """Rotary embeddings in the half-split layout (Su et al. 2021, RoFormer, section 3.2; GPT-NeoX, Llama).

    Column j of a head is paired with column j + rotary_dim / 2. Scalings (linear, dynamic, yarn, llama3, ...) are
    chosen in `rope_parameters` and come from transformers.
    """

    uses_rope_parameters = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.rotary_emb = PartialRotaryEmbedding(config)
        self.counts_padding = self.rotary_emb.changes_after is None and ATTENTIONS.get(config.attention).keeps_distances

    @classmethod
    def changes_after(cls, config: ZooConfig) -> int | None:
        """Of longrope the original length, of dynamic `max_position_embeddings`."""
        rope = config.rope_parameters
        by_type = {"dynamic": config.max_position_embeddings, "longrope": rope.get("original_max_position_embeddings")}
        return by_type.get(rope.get("rope_type", "default"))

    def outgrows_cache(self, attention_mask: Any, seen: int, length: int) -> bool:
        if (threshold := self.rotary_emb.changes_after) is None or not seen or length <= threshold:
            return False
        before, after = torch.tensor([seen]), torch.tensor([length])
        if isinstance(attention_mask, Tensor) and attention_mask.ndim == 2:
            before, after = attention_mask[:, :seen].sum(dim=1), attention_mask.sum(dim=1)
        changes = before < after if self.rotary_emb.rope_type == "dynamic" else before <= threshold
        return bool((changes & (after > threshold)).any())

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> Rotation:
        return self.rotary_emb(hidden_states, position_ids=position_ids)

    @staticmethod
    def rotate(query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        cos, sin = rotation
        rotary_dim = cos.shape[-1]
        if rotary_dim == query.shape[-1]:
            return apply_rotary_pos_emb(query, key, cos, sin)
        rotated = apply_rotary_pos_emb(query[..., :rotary_dim], key[..., :rotary_dim], cos, sin)
        return (
            torch.cat([rotated[0], query[..., rotary_dim:]], dim=-1),
            torch.cat([rotated[1], key[..., rotary_dim:]], dim=-1),
        )


class InterleavedRotaryPosition(RotaryPosition):
    """Rotary embeddings in the paper's own layout: column 2j is paired with column 2j + 1 (RoFormer, GPT-J)."""

    @staticmethod
    def rotate(query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        cos, sin = (table[..., : table.shape[-1] // 2].unsqueeze(1) for table in rotation)
        return _turned(query, cos, sin), _turned(key, cos, sin)


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring pairs of the first columns of each head, (batch_size, num_heads, seq_len, head_dim)."""
    rotary_dim = 2 * cos.shape[-1]
    even, odd = heads[..., :rotary_dim].unflatten(-1, (-1, 2)).unbind(dim=-1)
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return turned if rotary_dim == heads.shape[-1] else torch.cat([turned, heads[..., rotary_dim:]], dim=-1)


class RotaryByLayerPosition(Position):
    """Rotary embeddings with settings for every layer type (Gemma team 2025, Gemma 3, section 2; ModernBERT).

    Layers that see the whole text have long wavelengths, those with a window need short ones only.
    """

    uses_rope_parameters = True
    rope_layer_types = LAYER_TYPES
    default_rope_parameters: ClassVar[dict[str, Any]] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    rotate = staticmethod(RotaryPosition.rotate)

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.by_type = nn.ModuleDict()
        self.by_type.update({layer_type: RotaryPosition(own) for layer_type, own in by_layer_type(config).items()})
        self.counts_padding = all(part.counts_padding for part in self.by_type.values())

    @classmethod
    def changes_after(cls, config: ZooConfig) -> int | None:
        found = (RotaryPosition.changes_after(own) for own in by_layer_type(config).values())
        return min((length for length in found if length is not None), default=None)

    def outgrows_cache(self, attention_mask: Any, seen: int, length: int) -> bool:
        parts = cast("Iterable[RotaryPosition]", self.by_type.values())
        return any(part.outgrows_cache(attention_mask, seen, length) for part in parts)

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> Rotation:
        return self.rotations(hidden_states, position_ids, ["full_attention"])["full_attention"]

    def rotations(self, hidden_states: Tensor, position_ids: Tensor, layer_types: Iterable[str]) -> dict[str, Rotation]:
        parts = {layer_type: cast("RotaryPosition", self.by_type[layer_type]) for layer_type in layer_types}
        return {layer_type: part.rotation(hidden_states, position_ids) for layer_type, part in parts.items()}


def by_layer_type(config: ZooConfig) -> dict[str, ZooConfig]:
    """The configuration of each layer type, with its own rotary settings."""
    own = {layer_type: copy.copy(config) for layer_type in config.rope_parameters}
    for layer_type, one in own.items():
        one.rope_parameters = config.rope_parameters[layer_type]
    return own
