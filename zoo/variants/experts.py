"""Decoders whose feed-forward networks are mixtures of experts."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "mixtral-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Jiang et al. 2024, section 2",
    paper="Jiang et al. 2024, Mixtral of Experts",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "pre",
        "num_key_value_heads": 2,
        "feed_forward": "moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    presets={"tiny": {"num_experts": 4}},
)
def mixtral_style(config: ZooConfig) -> Transformer:
    """Llama-style decoder whose tokens each see two of eight feed-forward networks, chosen by a softmax."""
    return Transformer()


@register(
    "qwen3-moe-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Qwen team 2025, section 2",
    paper="Qwen team 2025, Qwen3 Technical Report",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "pre",
        "layer_norm_eps": 1e-6,
        "num_key_value_heads": 2,
        "qk_norm": "head",
        "feed_forward": "moe",
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    presets={
        "tiny": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
        "small": {"moe_intermediate_size": 256},
    },
)
def qwen3_moe_style(config: ZooConfig) -> Transformer:
    """Decoder with normalised queries and keys whose tokens each see four of sixteen narrow feed-forward networks."""
    return Transformer()


@register(
    "deepseek-moe",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="DeepSeek-AI 2024, section 2.1.2; Wang et al. 2024",
    paper="DeepSeek-AI 2024, DeepSeek-V3 Technical Report",
    tags=("decoder", "pre-norm", "modern", "mixture-of-experts"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "pre",
        "layer_norm_eps": 1e-6,
        "num_key_value_heads": 2,
        "feed_forward": "moe-sigmoid",
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "routed_scaling_factor": 2.5,
    },
    presets={
        "tiny": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
        "small": {"moe_intermediate_size": 256},
    },
    limits=("Its attention is Llama's: what it shares with DeepSeek-V3 is the feed-forward network.",),
)
def deepseek_moe(config: ZooConfig) -> Transformer:
    """Llama-style decoder with a shared expert beside those that sigmoids and a balancing bias choose."""
    return Transformer()
