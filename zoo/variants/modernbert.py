"""ModernBERT: what decoders have taught encoders."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .encoders import BERT_BASE, ENCODER_TASKS
from .layer_patterns import GLOBAL, LOCAL, NARROW


@register(
    "modernbert-style",
    tasks=ENCODER_TASKS,
    source="Warner et al. 2024, section 2",
    paper="Warner et al. 2024, Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder",
    tags=("encoder", "pre-norm", "modern", "sliding-window"),
    defaults={
        **BERT_BASE,
        "vocab_size": 50368,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "norm": "layernorm-no-bias",
        "norm_placement": "pre",
        "residual": "no-first-norm",
        "layer_norm_eps": 1e-5,
        "embedding_norm": True,
        "position": "rotary-by-layer",
        "rope_parameters": {
            GLOBAL: {"rope_type": "default", "rope_theta": 160_000.0},
            LOCAL: {"rope_type": "default", "rope_theta": 10_000.0},
        },
        "max_position_embeddings": 8192,
        "sliding_window": 64,
        "layer_types": [GLOBAL, LOCAL, LOCAL],
        "feed_forward": "gated",
        "hidden_act": "gelu",
        "attention_bias": False,
        "mlp_bias": False,
        "dropout": 0.0,
        "tie_word_embeddings": True,
        "lm_head_bias": True,
        "lm_head_transform": True,
        "classifier_pooling": "cls",
        "classifier_pooler_act": "gelu",
    },
    presets={
        "base": {**BERT_BASE, "intermediate_size": 1152, "num_hidden_layers": 22},
        "tiny": NARROW,
    },
)
def modernbert_style(config: ZooConfig) -> Transformer:
    """Encoder without biases: gated feed-forwards, rotary positions, two layers with a window to one without."""
    return Transformer()
