"""Multi-token prediction."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "multi-token-prediction",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="DeepSeek-AI 2024, section 2.2",
    paper="Gloeckle et al. 2024, Better & Faster Large Language Models via Multi-token Prediction",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "norm_placement": "pre", "layer_norm_eps": 1e-5, "num_nextn_predict_layers": 1},
    limits=("The layer of the further token runs in training only: nothing drafts tokens by it (use_mtp).",),
)
def multi_token_prediction(config: ZooConfig) -> Transformer:
    """Llama's layers, and in training one more that learns to predict the token behind the next."""
    return Transformer()
