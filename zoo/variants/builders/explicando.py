"""The Transformer of "Explicando Transformers": a post-norm encoder-decoder without attention biases, on characters."""

from typing import Any

import torch
from torch import Tensor

from zoo.base.errors import InputError
from zoo.models import Attention, DecoderLayer, TokenEmbedding, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.transformer import shift_tokens_right

from .nlpt import no_mask
from .vanilla import require_plain_residual


class MemoryQueriesAttention(Attention):
    """Cross attention in which the encoder's output makes queries and keys, and the decoder's states the values."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        key_value_states: Tensor | None = None,
        position_embeddings: Any = None,
        past_key_values: Any = None,
        step: int | None = None,
        earlier: Any = None,
        **kwargs: Any,
    ) -> Mixed:
        """Mix the decoder's states by the similarities of the encoder's; both have the same length."""
        target_len = hidden_states.shape[1]
        source_len = 0 if key_value_states is None else key_value_states.shape[1]
        if key_value_states is None or source_len != target_len:
            raise InputError(
                f"the quirk memory-makes-queries needs source and target of one length; "
                f"the target has {target_len} tokens, the source {source_len}"
            )
        query = self.split_heads(self.q_proj(key_value_states), self.q_norm)
        key = self.split_heads(self.k_proj(key_value_states), self.k_norm)
        value = self.split_heads(self.v_proj(hidden_states))
        mixed, weights = self.attend(query, key, value, attention_mask, position_bias=position_bias, **kwargs)
        return self.merge_heads(mixed, hidden_states, None), weights


class ExplicandoDecoderLayer(DecoderLayer):
    """A post-norm layer; with the quirks, self-attention has no residual or norm, cross attention swaps roles."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if config.has_quirk("memory-makes-queries"):
            self.replace_attention("cross_attn", MemoryQueriesAttention(config, layer_idx, is_cross=True))
        if config.has_quirk("self-attention-stands-bare"):
            require_plain_residual(config, "self-attention-stands-bare")
            self.self_attn_residual = BareSublayer()


class BareSublayer(torch.nn.Module):
    """Replaces a residual connection: the sublayer's output and nothing else."""

    def forward(self, hidden_states: Tensor, sublayer: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the sublayer. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        return sublayer(hidden_states, *args, **kwargs)[0]


class FrozenEmbedding(TokenEmbedding):
    """Token embeddings looked up where no gradient is recorded."""

    @torch.no_grad()
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)


def source_ids(input_ids: Tensor | None, labels: Tensor | None, config: ZooConfig) -> Tensor:
    """The source itself, unshifted; raises InputError if labels have another length."""
    if input_ids is not None and labels is not None and input_ids.shape[1] != labels.shape[1]:
        raise InputError(
            f"with the quirk decoder-reads-the-source, source and target must be of one length; "
            f"the source has {input_ids.shape[1]} tokens, the target {labels.shape[1]}"
        )
    return shift_tokens_right(input_ids, labels, config) if input_ids is None else input_ids


def explicando(config: ZooConfig) -> Transformer:
    return Transformer(
        decoder_layer=ExplicandoDecoderLayer,
        embedding=FrozenEmbedding if config.has_quirk("embedding-never-learns") else TokenEmbedding,
        decoder_inputs=source_ids if config.has_quirk("decoder-reads-the-source") else shift_tokens_right,
        supports_unpadding=not config.quirks,
        attention_mask=no_mask if config.has_quirk("padding-is-attended") else None,
    )
