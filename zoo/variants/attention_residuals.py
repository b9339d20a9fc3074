"""Attention residuals."""

from __future__ import annotations

from zoo.models import Transformer, ZooConfig
from zoo.registry import TASKS, register

from .norm_placements import PLAIN


@register(
    "attention-residuals",
    tasks=("causal-lm", *(task for task in TASKS if task != "causal-lm")),
    source="Kimi Team 2026, full attention residuals",
    paper="Kimi Team 2026, Attention Residuals",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "attention-residuals"},
)
def attention_residuals(config: ZooConfig) -> Transformer:
    """Pre-norm Transformer whose sublayers attend to what all earlier ones wrote, where others read its sum."""
    return Transformer()
