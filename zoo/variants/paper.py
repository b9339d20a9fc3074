"""The Transformer of the paper."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register


@register(
    "attention-is-all-you-need",
    tasks=("seq2seq-lm", "feature-extraction"),
    source="Vaswani et al. 2017, table 3",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("paper", "encoder-decoder", "post-norm"),
    aliases=("transformer", "vaswani"),
    defaults={
        "norm_placement": "post",
        "position": "sinusoidal-halves",
        "hidden_act": "relu",
        "attention_bias": False,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "vocab_size": 37000,
        "initializer": "xavier-uniform",
    },
    presets={
        "base": {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048},
        "big": {
            "hidden_size": 1024,
            "num_hidden_layers": 6,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "dropout": 0.3,
        },
    },
)
def attention_is_all_you_need(config: ZooConfig) -> Transformer:
    """Post-norm encoder-decoder with sinusoidal positions and one embedding for source, target and output."""
    return Transformer()
