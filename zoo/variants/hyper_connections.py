"""Hyper-connections: free, constrained to a manifold, and gated."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import TASKS, register

from .norm_placements import PLAIN


@register(
    "hyper-connections",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Zhu et al. 2024, section 2",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "hyper-connections", "num_streams": 4},
)
def hyper_connections(config: ZooConfig) -> Transformer:
    """Pre-norm Transformer with four residual streams that learned, token-dependent weights read, mix and write."""
    return Transformer()


@register(
    "manifold-hyper-connections",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Xie et al. 2025, section 4; DeepSeek-V4",
    paper="Xie et al. 2025, mHC: Manifold-Constrained Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "manifold-hyper-connections", "num_streams": 4},
)
def manifold_hyper_connections(config: ZooConfig) -> Transformer:
    """Pre-norm Transformer with four residual streams that are mixed by doubly stochastic matrices."""
    return Transformer()


@register(
    "gated-hyper-connections",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="transformers' class of Qwen4's experimental models",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "none", "residual": "gated-hyper-connections", "num_streams": 4},
)
def gated_hyper_connections(config: ZooConfig) -> Transformer:
    """Transformer with four normalised residual streams that gates read, channel by channel, and that are not mixed."""
    return Transformer()
