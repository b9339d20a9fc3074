"""Decoders with mixtures of experts as feed-forward networks."""

from typing import Any

from .decoders import LLAMA, LLAMA_LIKE, QWEN3, decoder
from .layer_patterns import GLOBAL, LOCAL, NARROW

NARROW_EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512}
FEW_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
SIZES = {"tiny": FEW_EXPERTS, "small": {"moe_intermediate_size": 256}}

LATENT: dict[str, Any] = {
    **LLAMA_LIKE,
    "layer_norm_eps": 1e-6,
    "attention": "latent",
    "head_dim": 32,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "feed_forward": "moe-sigmoid",
    **NARROW_EXPERTS,
    "first_k_dense_replace": 1,
}
NARROW_LATENT = {"head_dim": 8, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "v_head_dim": 16, **FEW_EXPERTS}

decoder(
    "mixtral-style",
    "Llama-style decoder; each token sees two of eight feed-forward networks, chosen by a softmax.",
    source="Jiang et al. 2024, section 2",
    paper="Jiang et al. 2024, Mixtral of Experts",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **LLAMA_LIKE,
        "num_key_value_heads": 2,
        "feed_forward": "moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    presets={"tiny": {"num_experts": 4}},
)

decoder(
    "qwen3-moe-style",
    "Decoder with normalised queries and keys; each token sees four of sixteen narrow feed-forward networks.",
    source="Qwen team 2025, section 2",
    paper="Qwen team 2025, Qwen3 Technical Report",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **QWEN3,
        "feed_forward": "moe",
        **NARROW_EXPERTS,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    presets=SIZES,
)

decoder(
    "deepseek-moe",
    "Llama-style decoder with a shared expert next to those that sigmoids and a balancing bias choose.",
    source="DeepSeek-AI 2024, section 2.1.2; Wang et al. 2024",
    paper="DeepSeek-AI 2024, DeepSeek-V3 Technical Report",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **LLAMA,
        "feed_forward": "moe-sigmoid",
        **NARROW_EXPERTS,
        "routed_scaling_factor": 2.5,
    },
    presets=SIZES,
    limits=("Its attention is Llama's: what it shares with DeepSeek-V3 is the feed-forward network.",),
)

decoder(
    "deepseek-v3-style",
    "Decoder that caches one latent vector a token, with experts that sigmoids choose in all layers but the first.",
    source="DeepSeek-AI 2024, section 2.1",
    paper="DeepSeek-AI 2024, DeepSeek-V3 Technical Report",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts", "latent-attention"),
    defaults={**LATENT, "position": "rotary-interleaved", "q_lora_rank": 192, "routed_scaling_factor": 2.5},
    presets={**SIZES, "tiny": {**NARROW_LATENT, "q_lora_rank": 24}},
)

decoder(
    "gpt-oss-style",
    "Decoder of clamped experts with biases; heads may attend to nothing, and every other layer sees a window.",
    source="OpenAI 2025, section 2",
    paper="OpenAI 2025, gpt-oss-120b & gpt-oss-20b Model Card",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts", "sliding-window"),
    defaults={
        **LLAMA_LIKE,
        "attention": "sinks",
        "attention_bias": True,
        "num_key_value_heads": 2,
        "sliding_window": 128,
        "layer_types": [LOCAL, GLOBAL],
        "feed_forward": "moe-clamped",
        "mlp_bias": True,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "intermediate_size": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0},
    },
    presets={
        "tiny": {**NARROW, "num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48},
        "small": {"intermediate_size": 256},
    },
)
