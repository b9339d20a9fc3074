"""Encoder-decoders: one translation or summarisation model a published architecture."""

from functools import partial
from typing import Any

from zoo.registry import register

from .encoders import ENCODER_TASKS

TIED: dict[str, Any] = {
    "position": "sinusoidal-halves",
    "scale_embedding": True,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "initializer": "xavier-uniform",
}
"""One embedding for source, target and output."""

seq2seq = partial(register, tasks=("seq2seq-lm", "feature-extraction"))
"""Registers an encoder-decoder."""

seq2seq(
    "attention-is-all-you-need",
    "Post-norm encoder-decoder with sinusoidal positions and one embedding for source, target and output.",
    source="Vaswani et al. 2017, table 3",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("paper", "encoder-decoder", "post-norm"),
    aliases=("transformer", "vaswani"),
    defaults={**TIED, "norm_placement": "post", "hidden_act": "relu", "attention_bias": False, "vocab_size": 37000},
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

seq2seq(
    "t5-style",
    "Pre-norm encoder-decoder with RMSNorm, bucketed relative positions, unscaled attention and no biases.",
    source="Raffel et al. 2020, section 2.1, with the gated feed-forward of version 1.1",
    paper="Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    tags=("encoder-decoder", "pre-norm"),
    defaults={
        "vocab_size": 32128,
        "norm": "rmsnorm",
        "norm_placement": "pre",
        "layer_norm_eps": 1e-6,
        "position": "t5",
        "attention_bias": False,
        "attention_scale": "none",
        "mlp_bias": False,
        "feed_forward": "gated",
        "hidden_act": "gelu_new",
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "share_encoder_decoder_embeddings": True,
        "initializer": "t5",
    },
    deviations=(
        "T5 is trained with Adafactor, whose steps follow the size of each weight; under AdamW the queries of its "
        "unscaled attention learn too fast (`attention_scale=head-dim` helps).",
    ),
)

seq2seq(
    "t5gemma-style",
    "Encoder-decoder of two stacks like Gemma 2's: norms around each sublayer, alternating local and global attention.",
    source="Zhang et al. 2025, section 3",
    paper="Zhang et al. 2025, Encoder-Decoder Gemma: Improving the Quality-Efficiency Trade-Off via Adaptation",
    tags=("encoder-decoder", "sandwich-norm", "modern", "sliding-window"),
    defaults={
        "norm": "zero-centered-rmsnorm",
        "norm_placement": "sandwich",
        "layer_norm_eps": 1e-6,
        "position": "rotary",
        "feed_forward": "gated",
        "hidden_act": "gelu_pytorch_tanh",
        "attention_bias": False,
        "mlp_bias": False,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": 4096,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 8192,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "dropout": 0.0,
    },
    presets={"tiny": {"sliding_window": 16}},
    limits=("Encoder and decoder are of one width; the original also joins a wide encoder with a narrow decoder.",),
)

seq2seq(
    "marian-style",
    "Post-norm encoder-decoder with sinusoidal positions, swish, and one embedding for source, target and output.",
    source="Junczys-Dowmunt et al. 2018, the transformer-base model",
    paper="Junczys-Dowmunt et al. 2018, Marian: Fast Neural Machine Translation in C++",
    tags=("encoder-decoder", "post-norm"),
    defaults={**TIED, "norm_placement": "post", "hidden_act": "silu", "lm_head_bias": True},
)

seq2seq(
    "pegasus-style",
    "Pre-norm encoder-decoder with sinusoidal positions and one embedding for source, target and output.",
    source="Zhang et al. 2020, section 4",
    paper="Zhang et al. 2020, PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization",
    tags=("encoder-decoder", "pre-norm"),
    defaults={**TIED, "norm_placement": "pre", "hidden_act": "relu", "lm_head_bias": True},
)

register(
    "universal",
    "One post-norm layer applied over and over, with an embedding for every step.",
    tasks=("seq2seq-lm", "causal-lm", *ENCODER_TASKS),
    source="Dehghani et al. 2019, section 2.1, with a fixed number of steps",
    paper="Dehghani et al. 2019, Universal Transformers",
    tags=("post-norm", "shared-layers"),
    defaults={
        "norm_placement": "post",
        "position": "sinusoidal",
        "hidden_act": "relu",
        "scale_embedding": True,
        "share_layers": True,
        "initializer": "xavier-uniform",
    },
    limits=("The number of steps is fixed: it has no adaptive halting.",),
    builder="zoo.variants.builders.universal:universal",
)
