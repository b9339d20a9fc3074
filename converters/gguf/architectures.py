"""The architectures of llama.cpp that models of the zoo can be, with the classes of transformers that lead to them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.mixers.delta_net import sizes

from .architecture import SMALL_NORMS, TABLED, Architecture, Metadata, period, setting
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


class Gating(IntEnum):
    """llama.cpp's numbers of functions that turn a router's scores into weights."""

    SIGMOID = 2


def softcaps(config: ZooConfig) -> Metadata:
    """Gemma 2's bounds on scores and logits."""
    return {
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
    }


def two_rotations(config: ZooConfig) -> Metadata:
    """Gemma 3's bases: of layers that see everything, and of those with a window."""
    rope = config.rope_parameters
    full, sliding = (rope.get(kind, rope) for kind in ("full_attention", "sliding_attention"))
    return {"rope_freq_base": full["rope_theta"], "rope_freq_base_swa": sliding["rope_theta"]}


def experts(config: ZooConfig) -> Metadata:
    """Number of experts, and the width of one."""
    return {
        "expert_count": setting(config, "num_experts"),
        "expert_used_count": setting(config, "num_experts_per_tok"),
        "expert_feed_forward_length": inner_size(config),
        "feed_forward_length": inner_size(config),
    }


def convolutions(config: ZooConfig) -> Metadata:
    """LFM2's convolutions; llama.cpp knows their layers by heads of keys that they lack."""
    heads = config.num_key_value_heads
    kinds = config.types_of_layers()
    return {
        "shortconv_l_cache": setting(config, "conv_L_cache"),
        "head_count_kv": [heads if kind == "full_attention" else 0 for kind in kinds],
    }


def layers_without_attention(config: ZooConfig) -> int | None:
    """Of how many layers the last has attention, and all others have none."""
    return period([kind != "full_attention" for kind in config.types_of_layers()])


def delta_rule(config: ZooConfig) -> Metadata:
    """Qwen3-Next's experts and its gated delta rule, in the words of Mamba."""
    key_heads, value_heads, key_dim, value_dim = sizes(config)
    return {
        **experts(config),
        "expert_shared_feed_forward_length": setting(config, "shared_expert_intermediate_size") or inner_size(config),
        "full_attention_interval": layers_without_attention(config),
        "ssm_conv_kernel": setting(config, "linear_conv_kernel_dim"),
        "ssm_state_size": key_dim,
        "ssm_group_count": key_heads,
        "ssm_time_step_rank": value_heads,
        "ssm_inner_size": value_heads * value_dim,
    }


def unlike_qwen3_next(config: ZooConfig) -> list[str]:
    """Find attention in other layers, and heads of two widths."""
    _, _, key_dim, value_dim = sizes(config)
    found = []
    if not layers_without_attention(config):
        found.append(f"layer_types={config.types_of_layers()}, it has attention in every n-th layer")
    if key_dim != value_dim:
        found.append(f"linear_value_head_dim={value_dim}, it has linear_key_head_dim={key_dim}")
    return found


def latent(config: ZooConfig) -> Metadata:
    """DeepSeek's latent vectors: llama.cpp takes them for one head of keys and values that all queries share."""
    rank, rotated, plain = (setting(config, name) for name in ("kv_lora_rank", "head_dim", "qk_nope_head_dim"))
    return {
        "q_lora_rank": setting(config, "q_lora_rank"),
        "kv_lora_rank": rank,
        "head_count_kv": 1,
        "key_length": rank + rotated,
        "value_length": rank,
        "key_length_mla": plain + rotated,
        "value_length_mla": setting(config, "v_head_dim"),
        "rope_dimension_count": rotated,
    }


def dense_latent(config: ZooConfig) -> Metadata:
    """The same without experts."""
    return {
        **latent(config),
        "leading_dense_block_count": config.num_hidden_layers,
        "expert_feed_forward_length": config.intermediate_size,
        "expert_shared_count": 0,
    }


def latent_experts(config: ZooConfig) -> Metadata:
    """DeepSeek-V3's latent vectors, and experts that sigmoids choose, at first within groups."""
    groups = {
        "expert_group_count": setting(config, "n_group"),
        "expert_group_used_count": setting(config, "topk_group"),
    }
    return {
        **experts(config),
        **latent(config),
        **(groups if groups["expert_group_count"] > 1 else {}),
        "feed_forward_length": config.intermediate_size,
        "leading_dense_block_count": setting(config, "first_k_dense_replace"),
        "expert_shared_count": setting(config, "n_shared_experts"),
        "expert_gating_func": Gating.SIGMOID,
        "expert_weights_scale": float(setting(config, "routed_scaling_factor")),
        "expert_weights_norm": setting(config, "norm_topk_prob"),
    }


def without_query_rank(config: ZooConfig) -> list[str]:
    """Find queries that are projected from the token itself, which its architecture lacks."""
    return [] if setting(config, "q_lora_rank") else ["q_lora_rank=0, it has a positive number"]


def unbounded(config: ZooConfig) -> list[str]:
    """Find bounds that are None, where Gemma 2 has numbers."""
    return [f"{name}=None, it has a number" for name, bound in softcaps(config).items() if bound is None]


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
