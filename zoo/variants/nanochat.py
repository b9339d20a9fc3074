"""nanochat's Transformer, as far as its attention, feed-forward network and heads go."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "nanochat-style",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Karpathy 2025, nanochat, as transformers has it",
    paper="Karpathy 2025, nanochat: The best ChatGPT that $100 can buy",
    tags=("decoder", "pre-norm", "modern"),
    defaults={
        **LLAMA_LIKE,
        "norm_placement": "pre",
        "layer_norm_eps": 1e-6,
        "embedding_norm": True,
        "qk_norm": "head",
        "feed_forward": "mlp",
        "hidden_act": "relu2",
        "final_logit_softcapping": 15.0,
    },
    limits=("Norms have weights, which the original's lack; they start at one.",),
)
def nanochat_style(config: ZooConfig) -> Transformer:
    """Pre-norm decoder with squared ReLU, norms on embeddings, queries and keys, and soft-capped logits."""
    return Transformer()
