"""Value residual learning."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "value-residual",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Zhou et al. 2024, section 3, Learnable-ResFormer",
    paper="Zhou et al. 2024, Value Residual Learning",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "norm_placement": "pre", "layer_norm_eps": 1e-5, "attention": "value-residual"},
)
def value_residual(config: ZooConfig) -> Transformer:
    """Llama's layers, all of which mix the values of the first layer into their own."""
    return Transformer()
