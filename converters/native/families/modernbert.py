"""Rotary encoders: ModernBERT with local and global layers, NomicBERT, EuroBERT."""

from ...transforms import split
from ..declared import Field, native_format, same
from ..decoders import HEAD_DIM, PROJECTIONS, ROPE, ROPE_BY_LAYER
from ..encoders import BERT_FIELDS, POST_NORM, EncoderFormat, encoder_tasks, pooled, transformed
from .llama import ATTENTION, GATED, NO_BIASES, Llama


@native_format
class ModernBert(EncoderFormat):
    """ModernBERT (Warner et al. 2024), for masked words or features: its classifiers normalise what they pool."""

    name = "modernbert"
    variant = "modernbert-style"
    fields = {
        **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        **same("max_position_embeddings", "initializer_range", "tie_word_embeddings", "attention_dropout"),
        **ROPE_BY_LAYER,
        "hidden_act": Field("hidden_activation", has="gelu"),
        "layer_norm_eps": "norm_eps",
        "dropout": "embedding_dropout",
        "activation_dropout": "mlp_dropout",
        "sliding_window": Field(
            "local_attention",
            lambda native: native.sliding_window,
            lambda config: 2 * (config.sliding_window or config.max_position_embeddings),
        ),
        "layer_types": Field("layer_types", write=lambda config: config.types_of_layers()),
    }
    always = {
        "norm": "layernorm-no-bias",
        "norm_placement": "pre",
        "residual": "no-first-norm",
        "final_norm": True,
        "embedding_norm": True,
        "embedding_norm_eps": lambda config: config.layer_norm_eps,
        "feed_forward": "gated",
        **NO_BIASES,
    }
    only = {
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
        "decoder_bias": True,
        "classifier_activation": "gelu",
    }
    body = {"embed_tokens": "embeddings.tok_embeddings", "embedding_norm": "embeddings.norm", "norm": "final_norm"}
    layer = {
        PROJECTIONS: ("attn.Wqkv", split(3)),
        "self_attn.o_proj": "attn.Wo",
        "self_attn_residual.norm_in": "attn_norm",
        "mlp_residual.norm_in": "mlp_norm",
        ("mlp.gate_proj", "mlp.up_proj"): ("mlp.Wi", split(2)),
        "mlp.down_proj": "mlp.Wo",
    }
    heads = {"feature-extraction": {}, "masked-lm": transformed("head.dense", "head.norm", "decoder")}
    reasons = {"norm": "its norms have no biases", "residual": "it has no norm before its first attention"}


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
        "sequence-classification": pooled("nomic_bert.pooler.dense"),
        "token-classification": {"classifier": "classifier"},
    }


@native_format
class EuroBert(EncoderFormat):
    """EuroBERT (Boizard et al. 2025)."""

    name = "eurobert"
    variant = "roberta-prelayernorm-style"
    fields = Llama.fields
    always = {**Llama.always, "norm_placement": "pre", "final_norm": True}
    body = Llama.body
    layer = Llama.layer
    heads = {
        "feature-extraction": {},
        "masked-lm": {"lm_head": "lm_head"},
        "token-classification": {"classifier": "classifier"},
    }
    of_task = encoder_tasks(lm_head_transform=False, lm_head_bias=lambda config: config.mlp_bias)
