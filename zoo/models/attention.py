"""Attention: projections, positions and caches here, the product through transformers' attention interface."""

from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from zoo.fast.attention import BACKENDS, attention
from zoo.fast.attention_backends import eager_attention
from zoo.fast.modules import Identity
from zoo.fast.preallocated_cache import CACHE_NAME

from .choices import AttentionScale, QKNorm
from .configuration import ZooConfig
from .context import EarlierLayers
from .norms import build_norm
from .parts import POSITIONS

Heads: TypeAlias = tuple[Tensor, Tensor]  # Keys and values

Mixed: TypeAlias = tuple[Tensor, Tensor | None]  # The mixed values, and the weights if the backend returns them


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2), grouped when there are fewer key-value heads.

    Args:
        layer_idx: Index of the layer in the stack and in the cache.
        is_causal: Whether a query may see only keys up to its own position.
        is_cross: Whether keys and values come from another sequence.

    Attributes:
        backends: Supported attention backends.
        supports_unpadding: Whether it runs on unpadded tokens, with an `UnpaddedMask` as mask.
        caches_heads: Whether it caches the keys and values of every head.
        weights_sum_to_one: Whether a query's weights over the keys sum to one.
        keeps_distances: Whether scores of rotated queries and keys depend on distances alone.
        reads_earlier_layers: Whether layers read tensors of earlier layers in the same call.
        reads_token_ids: Whether layers look up token ids, so that embeddings alone are not enough.
        attends_as_usual: Whether this layer is an ordinary one, in a class that changes only some of the layers.
        head_multiple: Divisor of the number of heads.
    """

    backends: tuple[str, ...] = BACKENDS
    supports_unpadding: bool = True
    caches_heads: bool = True
    weights_sum_to_one: bool = True
    keeps_distances: bool = True
    reads_earlier_layers: bool = False
    reads_token_ids: bool = False
    attends_as_usual: bool = False
    head_multiple: int = 1

    def __init__(self, config: ZooConfig, layer_idx: int, *, is_causal: bool = False, is_cross: bool = False) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.is_cross = is_cross
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = attention_scaling(config)
        self.dropout = config.attention_dropout
        self.softcap = config.attn_logit_softcapping
        self.qk_norm = config.qk_norm
        self.sliding_window = None if is_cross else config.window_of_layer(layer_idx)
        self.rotate = POSITIONS.get(config.position).rotate

        self.build_projections(config)

    @classmethod
    def kv_sharing_modes(cls, config: ZooConfig) -> list[str | None] | None:
        """KV-sharing mode of every layer ("store", "reuse" or None), by which transformers sizes caches; or None."""
        return None

    @classmethod
    def key_width(cls, config: ZooConfig) -> int:
        """Width of a key of one head, which muP's scale follows."""
        return config.head_dim

    def build_projections(self, config: ZooConfig) -> None:
        query_width = config.num_attention_heads * config.head_dim
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_out_bias)
        self.q_norm = self._qk_norm(query_width)
        self.k_norm = self._qk_norm(key_width)

    def init_values(self, gain: float) -> None:
        """Draw Xavier-uniform weights for the value projection, with bounds multiplied by `gain` (DeepNorm)."""
        init.xavier_uniform_(self.v_proj.weight, gain=gain)

    def _qk_norm(self, width: int) -> nn.Module:
        """The norm on a projection of this width, over one head or the whole projection."""
        if self.qk_norm is None:
            return Identity()
        return build_norm(self.config, self.head_dim if self.qk_norm == QKNorm.HEAD else width)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        key_value_states: Tensor | None = None,
        position_embeddings: Any = None,
        past_key_values: Cache | None = None,
        step: int | None = None,
        earlier: EarlierLayers | None = None,
        **kwargs: Any,
    ) -> Mixed:
        """Mix the values of all visible positions.

        Args:
            hidden_states: Input of the queries. *Shape:* (batch_size, query_len, hidden_size)
            attention_mask: In the backend's form, None for no mask beyond causality.
            position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)
            key_value_states: Input of keys and values in cross attention. *Shape:* (batch_size, key_len, hidden_size)
            position_embeddings: Result of the position part's `rotation`.
            past_key_values: Keys and values of earlier positions, extended in place.
            step: Number of layers applied before, the index in the cache; by default `layer_idx`.
            earlier: Tensors that layers of this call keep for later ones.
            kwargs: `attn_implementation`, by default the configuration's, and the backend's arguments.

        Returns:
            The output, *Shape:* (batch_size, query_len, hidden_size), and the weights if the backend has them,
            *Shape:* (batch_size, num_attention_heads, query_len, key_len).
        """
        cache_idx, own = self.layer_idx if step is None else step, None
        if self.is_cross and key_value_states is not None:
            query = self.split_heads(self.q_proj(hidden_states), self.q_norm)
            key, value = self.memory(key_value_states, past_key_values, cache_idx)
        else:
            query, key, own = self.project(hidden_states)
            if position_embeddings is not None:
                query, key = self.rotate_heads(query, key, position_embeddings)
            key, value = self.extend(key, own, past_key_values, cache_idx, earlier)
        if not self.is_causal:  # FlashAttention separates documents in a row by them, the keys' as well
            kwargs.pop("position_ids", None)
        # vLLM finds the attention module and its scale in this function's source: it looks for a call of the interface.
        backend = kwargs.pop("attn_implementation", None) or self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention)
        attend = partial(self.attend, interface=attend, attn_implementation=backend, position_bias=position_bias)
        if "cache" in kwargs and CACHE_NAME == "cache":  # pages, which backends stored before transformers 5.24
            key, value = kwargs.pop("cache").update(key, value, self.layer_idx, kwargs=kwargs)
        mixed, weights = attend(query, key, value, attention_mask, scaling=self.scaling, **kwargs)
        return self.merge_heads(mixed, hidden_states, own), weights

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention. *Shape:* (batch_size, num_heads, seq_len, head_dim) each."""
        query = self.split_heads(self.q_proj(hidden_states), self.q_norm)
        key = self.split_heads(self.k_proj(hidden_states), self.k_norm)
        return query, key, self.split_heads(self.v_proj(hidden_states))

    def rotate_heads(self, query: Tensor, key: Tensor, rotation: Any) -> tuple[Tensor, Tensor]:
        return self.rotate(query, key, rotation)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: Any) -> Heads:
        """Append keys and values, (batch_size, num_key_value_heads, seq_len, head_dim), to layer `idx` of the cache."""
        if past is None:
            return key, value
        return (past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past).update(key, value, idx)

    def split_heads(self, projected: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Split a projection, (batch_size, seq_len, num_heads * head_dim), into heads, and apply the norm if given."""
        if norm is not None and self.qk_norm == QKNorm.FULL:
            projected = norm(projected)
        heads = projected.view(*projected.shape[:-1], -1, self.head_dim)
        if norm is not None and self.qk_norm == QKNorm.HEAD:
            heads = norm(heads)
        return heads.transpose(1, 2)

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        """Project the mixed values of all heads.

        Args:
            mixed: *Shape:* (batch_size, query_len, num_attention_heads, head_dim)
            hidden_states: Input of the queries. *Shape:* (batch_size, query_len, hidden_size)
            value: Values at the queries' positions, None in cross attention.
                *Shape:* (batch_size, num_key_value_heads, query_len, head_dim)
        """
        return self.o_proj(mixed.reshape(*hidden_states.shape[:-1], -1))

    def memory(self, key_value_states: Tensor, past_key_values: Cache | None, cache_idx: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the other sequence, (batch_size, key_len, hidden_size), projected once and then cached."""
        cache = past_key_values if isinstance(past_key_values, EncoderDecoderCache) else None
        if cache is not None and cache.is_updated.get(cache_idx):
            layer = cache.cross_attention_cache.layers[cache_idx]
            key, value = layer.keys, layer.values
        else:
            key = self.split_heads(self.k_proj(key_value_states), self.k_norm)
            value = self.split_heads(self.v_proj(key_value_states))
            if cache is not None:
                key, value = cache.cross_attention_cache.update(key, value, cache_idx)
                cache.is_updated[cache_idx] = True
        # Beams may share one row of keys, which `attend` of this class supports.
        beams = key_value_states.shape[0] // key.shape[0]
        if beams > 1 and type(self).attend is not Attention.attend:
            key, value = key.repeat_interleave(beams, dim=0), value.repeat_interleave(beams, dim=0)
        return key, value

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        """Mix the values by a backend of transformers.

        Args:
            query: *Shape:* (batch_size, num_attention_heads, query_len, head_dim)
            key: *Shape:* (batch_size, num_key_value_heads, key_len, head_dim)
            value: *Shape:* as key.
            attention_mask: In the backend's form.
            kwargs: `interface`, the backend's function, and its name `attn_implementation`, by default the
                configuration's; `scaling`, by default the module's; `position_bias`, and other arguments of the
                backend.

        Returns:
            The mixed values, *Shape:* (batch_size, query_len, num_attention_heads, head_dim), and the weights or None.
        """
        kwargs = {"attn_implementation": self.config._attn_implementation, "scaling": self.scaling, **kwargs}
        kwargs["dropout"] = self.dropout if self.training else 0.0
        return attention(self, query, key, value, attention_mask, softcap=self.softcap, **kwargs)


def attention_scaling(config: ZooConfig) -> float:
    """The factor on the scores, by `attention_scale`."""
    scale = config.attention_scale
    if isinstance(scale, str):
        widths = {AttentionScale.HEAD_DIM: config.head_dim, AttentionScale.HIDDEN_SIZE: config.hidden_size}
        scale = widths.get(AttentionScale(scale), 1) ** 0.5
    return 1.0 / scale
