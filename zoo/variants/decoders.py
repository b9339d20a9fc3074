"""Decoders: one language model a published architecture."""

from __future__ import annotations

from typing import Any

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

DECODER_TASKS = ("causal-lm", "sequence-classification", "token-classification", "feature-extraction")
LLAMA_LIKE: dict[str, Any] = {
    "norm": "rmsnorm",
    "position": "rotary",
    "attention_bias": False,
    "mlp_bias": False,
    "feed_forward": "gated",
    "hidden_act": "silu",
    "dropout": 0.0,
    "max_position_embeddings": 2048,
    "classifier_pooling": "last",
}
HEADS: dict[str, dict[str, Any]] = {"sequence-classification": {"classifier_bias": False}}
"""As transformers classifies sequences by a decoder."""

GPT2_BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


@register(
    "gpt2-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Radford et al. 2019, section 2.3",
    paper="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    tags=("decoder", "pre-norm"),
    defaults={
        **GPT2_BASE,
        "vocab_size": 50257,
        "norm_placement": "pre",
        "position": "learned",
        "max_position_embeddings": 1024,
        "hidden_act": "gelu_pytorch_tanh",
        "attention_dropout": 0.1,
        "tie_word_embeddings": True,
        "classifier_pooling": "last",
        "initializer": "depth-scaled",
    },
    presets={"base": GPT2_BASE},
)
def gpt2_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with learned positions and a final norm, whose output projection is its embedding."""
    return Transformer()


@register(
    "llama-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Touvron et al. 2023, section 2.2",
    paper="Touvron et al. 2023, LLaMA: Open and Efficient Foundation Language Models",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "norm_placement": "pre", "layer_norm_eps": 1e-6, "num_key_value_heads": 2},
)
def llama_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with RMSNorm, rotary positions, SwiGLU, grouped queries and no biases."""
    return Transformer()


@register(
    "gptj-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Wang and Komatsuzaki 2021, mesh-transformer-jax",
    paper="Wang and Komatsuzaki 2021, GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",
    tags=("decoder", "pre-norm", "parallel"),
    defaults={
        "norm_placement": "pre",
        "parallel_residual": True,
        "position": "rotary-interleaved",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "max_position_embeddings": 2048,
        "hidden_act": "gelu_new",
        "attention_bias": False,
        "lm_head_bias": True,
        "dropout": 0.0,
        "classifier_pooling": "last",
    },
)
def gptj_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder whose sublayers read one norm in parallel, with interleaved rotary positions."""
    return Transformer()


@register(
    "alibi-decoder",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Press et al. 2021, section 3",
    paper="Press et al. 2021, Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    tags=("decoder", "pre-norm"),
    defaults={
        "norm_placement": "pre",
        "position": "alibi",
        "hidden_act": "gelu",
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "classifier_pooling": "last",
        "initializer": "depth-scaled",
    },
)
def alibi_decoder(config: ZooConfig) -> Transformer:
    """Pre-norm decoder without position embeddings, whose heads prefer near keys by fixed slopes."""
    return Transformer()


@register(
    "bloom-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="BigScience 2022, section 3.2",
    paper="BigScience 2022, BLOOM: A 176B-Parameter Open-Access Multilingual Language Model",
    tags=("decoder", "pre-norm"),
    defaults={
        "norm_placement": "pre",
        "embedding_norm": True,
        "position": "alibi",
        "hidden_act": "gelu_pytorch_tanh",
        "dropout": 0.0,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "classifier_pooling": "last",
    },
    presets={"tiny": {"intermediate_size": 256}},
)
def bloom_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with a norm on its embeddings, whose heads prefer near keys by fixed slopes."""
    return Transformer()


@register(
    "qk-norm",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Henry et al. 2020, section 3; Dehghani et al. 2023, section 2",
    paper="Henry et al. 2020, Query-Key Normalization for Transformers",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "norm_placement": "pre", "layer_norm_eps": 1e-6, "qk_norm": "head"},
)
def qk_norm(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with RMSNorm, rotary positions and SwiGLU that normalises the queries and keys of each head."""
    return Transformer()


@register(
    "qwen3-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Qwen team 2025, section 2, the dense models",
    paper="Qwen team 2025, Qwen3 Technical Report",
    tags=("decoder", "pre-norm", "modern"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "pre",
        "layer_norm_eps": 1e-6,
        "qk_norm": "head",
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
)
def qwen3_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with RMSNorm, also on queries and keys, rotary positions, SwiGLU and grouped queries."""
    return Transformer()


@register(
    "olmo2-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="OLMo team 2024, section 3.2",
    paper="OLMo team 2024, 2 OLMo 2 Furious",
    tags=("decoder", "res-post-norm", "modern"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "res-post",
        "layer_norm_eps": 1e-6,
        "qk_norm": "full",
        "final_norm": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
)
def olmo2_style(config: ZooConfig) -> Transformer:
    """Decoder with RMSNorm on the branch outputs only, normalised queries and keys, rotary positions and SwiGLU."""
    return Transformer()
