"""The plain Transformer with norms in every place that the literature has tried, and with other residual streams."""

from functools import partial
from typing import Any

from zoo.registry import TASKS, register

EVERY_TASK = ("causal-lm", *(task for task in TASKS if task != "causal-lm"))
PLAIN: dict[str, Any] = {"hidden_act": "gelu", "position": "learned", "initializer": "xavier-uniform"}

family = partial(register, tasks=EVERY_TASK)
"""Registers a variant that there is for every task."""

family(
    "post-norm",
    "Plain Transformer with a norm after each residual sum; deep ones need a learning-rate warm-up.",
    source="Vaswani et al. 2017, section 3.1",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    tags=("family", "post-norm"),
    defaults={**PLAIN, "norm_placement": "post", "embedding_norm": True},
)

family(
    "pre-norm",
    "Plain Transformer with a norm before each sublayer and after the last layer; trains without warm-up.",
    source="Xiong et al. 2020, figure 1 (b)",
    paper="Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    tags=("family", "pre-norm"),
    defaults={**PLAIN, "norm_placement": "pre"},
)

family(
    "sandwich-norm",
    "Plain Transformer with norms before and after each sublayer, inside the residual connection.",
    source="Ding et al. 2021, section 2.4",
    paper="Ding et al. 2021, CogView: Mastering Text-to-Image Generation via Transformers",
    tags=("family", "sandwich-norm"),
    defaults={**PLAIN, "norm_placement": "sandwich"},
)

family(
    "res-post-norm",
    "Plain Transformer with a norm on each sublayer's output, before it joins the residual stream.",
    source="Liu et al. 2022, section 3.2",
    paper="Liu et al. 2022, Swin Transformer V2: Scaling Up Capacity and Resolution",
    tags=("family", "res-post-norm"),
    defaults={**PLAIN, "norm_placement": "res-post", "final_norm": True},
)

family(
    "deepnorm",
    "Plain post-norm Transformer with scaled-up skip connections and branches that start small.",
    source="Wang et al. 2022, figure 2",
    paper="Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers",
    tags=("family", "post-norm", "deepnorm"),
    defaults={**PLAIN, "norm_placement": "deepnorm", "initializer": "deepnorm"},
)

family(
    "normformer",
    "Pre-norm Transformer with scaled heads and extra norms after attention and inside the feed-forward network.",
    source="Shleifer et al. 2021, section 2",
    paper="Shleifer et al. 2021, NormFormer: Improved Transformer Pretraining with Extra Normalization",
    tags=("pre-norm", "modern"),
    deviations=(
        "The skip connection of the feed-forward network has no learned scale, which the paper adds in its smaller "
        "models.",
    ),
    defaults={"norm_placement": "pre", "mlp_inner_norm": True, "hidden_act": "gelu", "position": "learned"},
    builder="zoo.variants.builders.normformer:normformer",
)

family(
    "rezero",
    "Transformer without norms, with branches weighted by scalars that start at zero.",
    source="Bachlechner et al. 2020, section 3",
    paper="Bachlechner et al. 2020, ReZero is All You Need: Fast Convergence at Large Depth",
    tags=("no-norm",),
    deviations=("Every sublayer has its own scalar; the authors' code has one a layer.",),
    defaults={
        "norm_placement": "none",
        "residual_scaling": "rezero",
        "hidden_act": "relu",
        "position": "learned",
        "initializer": "xavier-uniform",
    },
)


family(
    "hyper-connections",
    "Pre-norm Transformer with four residual streams that learned, token-dependent weights read, mix and write.",
    source="Zhu et al. 2024, section 2",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "hyper-connections", "num_streams": 4},
)

family(
    "manifold-hyper-connections",
    "Pre-norm Transformer with four residual streams that are mixed by doubly stochastic matrices.",
    source="Xie et al. 2025, section 4; DeepSeek-V4",
    paper="Xie et al. 2025, mHC: Manifold-Constrained Hyper-Connections",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "manifold-hyper-connections", "num_streams": 4},
)

family(
    "gated-hyper-connections",
    "Transformer with four normalised residual streams that gates read, channel by channel, and that are not mixed.",
    source="transformers' class of Qwen4's experimental models",
    paper="Zhu et al. 2024, Hyper-Connections",
    tags=("modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "none", "residual": "gated-hyper-connections", "num_streams": 4},
)

family(
    "attention-residuals",
    "Pre-norm Transformer with sublayers that attend to the outputs of all earlier ones, instead of reading their sum.",
    source="Kimi Team 2026, full attention residuals",
    paper="Kimi Team 2026, Attention Residuals",
    tags=("pre-norm", "modern", "several-streams"),
    defaults={**PLAIN, "norm_placement": "pre", "residual": "attention-residuals"},
)
