"""The plain Transformer with several residual streams, or with attention over the depth."""

from __future__ import annotations

from zoo.registry import register

from .norm_placements import EVERY_TASK, PLAIN

register(
    "hyper-connections",
    "Pre-norm Transformer with four residual streams that learned, token-dependent weights read, mix and write.",
    tasks=EVERY_TASK,
    source="Zhu et al. 2024, section 2",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "hyper-connections", "num_streams": 4},
)

register(
    "manifold-hyper-connections",
    "Pre-norm Transformer with four residual streams that are mixed by doubly stochastic matrices.",
    tasks=EVERY_TASK,
    source="Xie et al. 2025, section 4; DeepSeek-V4",
    paper="Xie et al. 2025, mHC: Manifold-Constrained Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "manifold-hyper-connections", "num_streams": 4},
)

register(
    "gated-hyper-connections",
    "Transformer with four normalised residual streams that gates read, channel by channel, and that are not mixed.",
    tasks=EVERY_TASK,
    source="transformers' class of Qwen4's experimental models",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "none", "residual": "gated-hyper-connections", "num_streams": 4},
)

register(
    "attention-residuals",
    "Pre-norm Transformer whose sublayers attend to what all earlier ones wrote, where others read its sum.",
    tasks=EVERY_TASK,
    source="Kimi Team 2026, full attention residuals",
    paper="Kimi Team 2026, Attention Residuals",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "attention-residuals"},
)
