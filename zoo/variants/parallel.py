"""Decoders whose attention and feed-forward network read the same input."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS


@register(
    "gpt-neox-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Black et al. 2022, section 2.1",
    paper="Black et al. 2022, GPT-NeoX-20B: An Open-Source Autoregressive Language Model",
    tags=("decoder", "pre-norm", "parallel"),
    aliases=("pythia-style",),
    defaults={
        "norm_placement": "pre",
        "parallel_residual": True,
        "position": "rotary",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "max_position_embeddings": 2048,
        "hidden_act": "gelu",
        "dropout": 0.0,
        "classifier_pooling": "last",
    },
    limits=("Both sublayers share one norm: weights of a second one would be those of what reads it.",),
)
def gpt_neox_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder whose sublayers run in parallel, with rotary positions on a quarter of each head."""
    return Transformer()


@register(
    "falcon-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Almazrouei et al. 2023, section 4, the 7B model",
    paper="Almazrouei et al. 2023, The Falcon Series of Open Language Models",
    tags=("decoder", "pre-norm", "parallel", "multi-query"),
    defaults={
        "norm_placement": "pre",
        "parallel_residual": True,
        "num_key_value_heads": 1,
        "position": "rotary",
        "max_position_embeddings": 2048,
        "hidden_act": "gelu",
        "attention_bias": False,
        "mlp_bias": False,
        "dropout": 0.0,
        "tie_word_embeddings": True,
        "classifier_pooling": "last",
    },
)
def falcon_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder whose sublayers run in parallel, with one key-value head and rotary positions."""
    return Transformer()
