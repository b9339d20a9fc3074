"""The architectures of llama.cpp that models of the zoo can be, with the classes of transformers that lead to them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling

from .architecture import SMALL_NORMS, TABLED, Architecture
from .metadata import (
    convolutions,
    delta_rule,
    dense_latent,
    experts,
    latent_experts,
    softcaps,
    two_rotations,
    unbounded,
    unlike_qwen3_next,
    without_query_rank,
)
from .weights import (
    Change,
    centred,
    clamped_experts,
    delta_projections,
    grouped,
    interleaved,
    squeezed,
    stacked_experts,
    transposed,
    unpacked_latent,
)

TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")


def fold_scale(projection: str) -> Change:
    """Fold what scores are divided by into the queries, for llama.cpp divides by the root of a head's width."""

    def change(state: dict[str, Tensor], config: ZooConfig) -> dict[str, Tensor]:
        factor = attention_scaling(config) * config.head_dim**0.5
        return {name: value * factor if f".{projection}." in name else value for name, value in state.items()}

    return change


GEMMA: dict[str, Any] = {"activations": TANH_GELU, "tolerance": TABLED}
TIED, BIASLESS, SUMMED = {"tie_word_embeddings": True}, {"attention_bias": False}, {"norm_topk_prob": True}
LATENT: dict[str, Any] = {"changes": (unpacked_latent, stacked_experts)}
LATENT |= {
    "only": {"position": "rotary-interleaved", **BIASLESS},
    "differs": without_query_rank,
    "other_depths": (26, 27),
}

ARCHITECTURES = (
    Architecture("llama", "llama", changes=(interleaved,)),
    Architecture("llama", "mixtral", changes=(interleaved, stacked_experts), metadata=experts),
    Architecture("qwen3", "qwen3"),
    Architecture("qwen3moe", "qwen3_moe", changes=(stacked_experts,), metadata=experts, only=SUMMED),
    Architecture("smollm3", "smollm3", changes=(interleaved,), positionless=4),
    Architecture("olmo2", "olmo2", output=True),
    Architecture("olmo2", "olmo3", windows=True, output=True),
    Architecture("gemma", "gemma", changes=(centred,), only=TIED, **GEMMA),
    Architecture(
        "gemma2",
        "gemma2",
        changes=(centred, fold_scale("q_proj")),
        metadata=softcaps,
        windows=True,
        only=TIED,
        differs=unbounded,
        other_depths=(46,),
        **GEMMA,
    ),
    Architecture(
        "gemma3",
        "gemma3_text",
        changes=(centred, fold_scale("q_norm")),
        metadata=two_rotations,
        windows=True,
        only={"attn_logit_softcapping": None},
        other_depths=(62,),
        **GEMMA,
    ),
    Architecture("gpt2", "gpt2", TANH_GELU, TABLED, changes=(transposed,)),
    Architecture("falcon", "falcon", TANH_GELU, TABLED, changes=(grouped("query_key_value"),)),
    Architecture(
        "gptneox",
        "gpt_neox",
        TANH_GELU,
        TABLED,
        changes=(grouped("query_key_value"),),
        metadata=lambda config: {"parallel_residual": config.parallel_residual},
        output=True,
        only={"attention_bias": True},
    ),
    Architecture("bloom", "bloom", TANH_GELU, TABLED, changes=(grouped("query_key_value"),)),
    Architecture("phi2", "phi", TANH_GELU, TABLED, output=True),
    Architecture(
        "qwen3next",
        "qwen3_next",
        tolerance=SMALL_NORMS,
        changes=(centred, delta_projections, squeezed, stacked_experts),
        metadata=delta_rule,
        only={**BIASLESS, **SUMMED},
        differs=unlike_qwen3_next,
    ),
    Architecture("lfm2", "lfm2", changes=(squeezed,), metadata=convolutions, only={"conv_bias": False}),
    Architecture(
        "gpt-oss",
        "gpt_oss",
        changes=(clamped_experts,),
        metadata=experts,
        windows=True,
        output=True,
        only={"attention_bias": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0},
    ),
    Architecture("deepseek2", "deepseek_v3", metadata=latent_experts, **LATENT),
    Architecture("deepseek2", "youtu", metadata=dense_latent, **LATENT),
)
"""Those that are known to come out right, in the order in which they are tried."""
