"""Decoders in which most layers have no attention."""

from .decoders import LLAMA_LIKE, QWEN3, decoder
from .experts import LATENT, NARROW_EXPERTS, NARROW_LATENT, SIZES
from .layer_patterns import GLOBAL

LINEAR, CONVOLUTION = "linear_attention", "conv"

decoder(
    "qwen3-next-style",
    "Decoder with three layers of gated delta rule to one of gated attention, and a gated expert for all tokens.",
    source="Qwen team 2025, Qwen3-Next; Yang et al. 2024, section 3",
    paper="Yang et al. 2024, Gated Delta Networks: Improving Mamba2 with Delta Rule",
    tags=("decoder", "pre-norm", "modern", "linear-attention", "mixture-of-experts"),
    defaults={
        **QWEN3,
        "norm": "zero-centered-rmsnorm",
        "attention": "gated",
        "mixer": "gated-delta-net",
        "layer_types": [LINEAR, LINEAR, LINEAR, GLOBAL],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000.0, "partial_rotary_factor": 0.25},
        "feed_forward": "moe-shared",
        **NARROW_EXPERTS,
    },
    presets=SIZES,
    limits=("It predicts one token at a time: the original's modules for further tokens are left out.",),
)

decoder(
    "kimi-linear-style",
    "Decoder with three layers of a delta rule that forgets by channel to one of latent attention; no positions.",
    source="Kimi Team 2025, sections 3 and 4",
    paper="Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture",
    tags=("decoder", "pre-norm", "modern", "linear-attention", "latent-attention", "mixture-of-experts"),
    defaults={
        **LATENT,
        "mixer": "kimi-delta-attention",
        "linear_head_dim": 64,
        "layer_types": [LINEAR, LINEAR, LINEAR, GLOBAL],
        "position": "none",
        "routed_scaling_factor": 2.446,
    },
    presets={**SIZES, "tiny": {**NARROW_LATENT, "linear_head_dim": 16}},
)

decoder(
    "lfm2-style",
    "Llama-style decoder with two layers of gated short convolution to one of attention.",
    source="Liquid AI 2025, section 2",
    paper="Liquid AI 2025, LFM2 Technical Report",
    tags=("decoder", "pre-norm", "modern", "convolution"),
    defaults={
        **LLAMA_LIKE,
        "qk_norm": "head",
        "num_key_value_heads": 2,
        "mixer": "short-conv",
        "layer_types": [CONVOLUTION, CONVOLUTION, GLOBAL],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
    },
)
