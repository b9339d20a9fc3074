"""Gemma 2."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register


@register(
    "gemma2-style",
    tasks=("causal-lm", "sequence-classification", "token-classification", "feature-extraction"),
    task_defaults={"sequence-classification": {"classifier_bias": False}},
    source="Gemma team 2024, section 2",
    paper="Gemma team 2024, Gemma 2: Improving Open Language Models at a Practical Size",
    tags=("decoder", "sandwich-norm", "modern", "sliding-window"),
    defaults={
        "norm": "rmsnorm",
        "norm_placement": "sandwich",
        "layer_norm_eps": 1e-6,
        "position": "rotary",
        "feed_forward": "gated",
        "hidden_act": "gelu_pytorch_tanh",
        "attention_bias": False,
        "mlp_bias": False,
        "num_key_value_heads": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": 4096,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 8192,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "dropout": 0.0,
        "classifier_pooling": "last",
    },
    presets={"tiny": {"sliding_window": 16}},
)
def gemma2_style(config: ZooConfig) -> Transformer:
    """Decoder with norms on both sides of each sublayer, soft-capped logits, and local and global attention in turn."""
    return Transformer()
