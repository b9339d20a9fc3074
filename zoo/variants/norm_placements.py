"""The plain Transformer with its norms in every place that the literature has tried. Each serves every task."""

from __future__ import annotations

from typing import Any

from zoo.models import Transformer, ZooConfig
from zoo.registry import TASKS, register

PLAIN: dict[str, Any] = {"hidden_act": "gelu", "position": "learned", "initializer": "xavier-uniform"}


@register(
    "post-norm",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Vaswani et al. 2017, section 3.1",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("family", "post-norm"),
    defaults={**PLAIN, "norm_placement": "post", "embedding_norm": True},
)
def post_norm(config: ZooConfig) -> Transformer:
    """Plain Transformer with a norm after each residual sum; deep ones need a learning-rate warm-up."""
    return Transformer()


@register(
    "pre-norm",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Xiong et al. 2020, figure 1 (b)",
    paper="Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    tags=("family", "pre-norm"),
    defaults={**PLAIN, "norm_placement": "pre"},
)
def pre_norm(config: ZooConfig) -> Transformer:
    """Plain Transformer with a norm before each sublayer and after the last layer; trains without warm-up."""
    return Transformer()


@register(
    "sandwich-norm",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Ding et al. 2021, section 2.4",
    paper="Ding et al. 2021, CogView: Mastering Text-to-Image Generation via Transformers",
    tags=("family", "sandwich-norm"),
    defaults={**PLAIN, "norm_placement": "sandwich"},
)
def sandwich_norm(config: ZooConfig) -> Transformer:
    """Plain Transformer with norms before and after each sublayer, inside the residual connection."""
    return Transformer()


@register(
    "res-post-norm",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Liu et al. 2022, section 3.2",
    paper="Liu et al. 2022, Swin Transformer V2: Scaling Up Capacity and Resolution",
    tags=("family", "res-post-norm"),
    defaults={**PLAIN, "norm_placement": "res-post", "final_norm": True},
)
def res_post_norm(config: ZooConfig) -> Transformer:
    """Plain Transformer with a norm on each sublayer's output, before it joins the residual stream."""
    return Transformer()


@register(
    "deepnorm",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Wang et al. 2022, figure 2",
    paper="Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers",
    tags=("family", "post-norm", "deepnorm"),
    defaults={**PLAIN, "norm_placement": "deepnorm", "initializer": "deepnorm"},
)
def deepnorm(config: ZooConfig) -> Transformer:
    """Plain post-norm Transformer whose skip connections are scaled up and whose branches start small."""
    return Transformer()
