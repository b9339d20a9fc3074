"""Nomic BERT: BERT with rotary positions and gated feed-forward networks without biases."""

from __future__ import annotations

from ..base import native_format
from ..decoders import HEAD_DIM, ROPE
from ..encoders import BERT_FIELDS, POST_NORM, EncoderFormat
from .llama import ATTENTION, GATED, NO_BIASES


@native_format
class NomicBert(EncoderFormat):
    """Nomic Embed (Nussbaum et al. 2024). Its head for masked words has a bias where its other layers have none."""

    name = "nomic_bert"
    variant = "roformer-style"
    prefix = "nomic_bert."
    fields = {**BERT_FIELDS, "head_dim": HEAD_DIM, "rope_parameters": ROPE}
    always = {**POST_NORM, **NO_BIASES, "position": "rotary", "feed_forward": "gated"}
    body = {
        "embed_tokens": "embeddings.word_embeddings",
        "token_types.weight": "embeddings.token_type_embeddings.weight",
        "embedding_norm": "embeddings.LayerNorm",
    }
    layer = {
        **ATTENTION,
        **GATED,
        "self_attn_residual.norm_out": "post_attention_layernorm",
        "mlp_residual.norm_out": "post_mlp_layernorm",
    }
    heads = {
        "feature-extraction": {},
        "sequence-classification": {"pooler.dense": "nomic_bert.pooler.dense", "classifier": "classifier"},
        "token-classification": {"classifier": "classifier"},
    }
