"""The Differential Transformer."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "diff-transformer",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Ye et al. 2024, section 2",
    paper="Ye et al. 2024, Differential Transformer",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "norm_placement": "pre", "layer_norm_eps": 1e-5, "attention": "differential"},
)
def diff_transformer(config: ZooConfig) -> Transformer:
    """Llama's layers whose heads subtract each other's attention weights in pairs, so that noise cancels."""
    return Transformer()
