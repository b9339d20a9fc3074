"""The normalised Transformer."""

from __future__ import annotations

from zoo.models import Transformer, UnitEmbedding, UnitHead, ZooConfig
from zoo.registry import register

from .decoders import DECODER_TASKS, HEADS, LLAMA_LIKE


@register(
    "ngpt",
    tasks=DECODER_TASKS,
    task_defaults=HEADS,
    source="Loshchilov et al. 2024, sections 2.1 to 2.6",
    paper="Loshchilov et al. 2024, nGPT: Normalized Transformer with Representation Learning on the Hypersphere",
    tags=("decoder", "modern"),
    defaults={
        **LLAMA_LIKE,
        "norm": "unit",
        "norm_placement": "post",
        "residual": "normalized",
        "embedding_norm": True,
        "attention": "normalized",
        "qk_norm": "head",
        "feed_forward": "normalized",
    },
    deviations=(
        "Embedded tokens are normalised in the forward as well, so that parts that add to them may be combined with "
        "it; with the default parts this changes gradients alone.",
    ),
    limits=(
        "Weight vectors are normalised in new models and after every step of `zoo train`, as the authors do; "
        "transformers' trainer takes `zoo.training.AfterSteps()` among its callbacks, and a loop of your own calls "
        "`zoo.models.normalize_weights(model)` behind the optimiser's step.",
    ),
)
def ngpt(config: ZooConfig) -> Transformer:
    """Decoder on the hypersphere: hidden states and weight vectors of length one, and learned steps between layers."""
    return Transformer(embedding=UnitEmbedding, head=UnitHead)
