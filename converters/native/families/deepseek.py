"""DeepSeek-V3: attention that caches latent vectors, and experts that sigmoids choose behind a few dense layers."""

from __future__ import annotations

import math
from typing import Any

from zoo.models import AttentionScale, LatentAttention, SigmoidMixtureOfExperts, ZooConfig
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.parts import option

from ..base import native_format
from ..declared import Field, Keys, choice, without
from .experts import EXPERTS, ExpertsLike, setting
from .llama import ATTENTION_BIAS, GATED, PRE_NORMS, SAME_OUT_BIAS, LlamaLike

ROUTING = ("num_experts_per_tok", "output_router_logits", "norm_topk_prob", "first_k_dense_replace")
SHARED = ("n_shared_experts", "n_group", "topk_group", "routed_scaling_factor")
WIDTHS = ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")


def latent(name: str) -> Field:
    """A width of the attention part, which a configuration has only where it was given.

    Args:
        name: Its name, on both sides.
    """
    return Field(name, write=lambda config: option(config, LatentAttention, name))


def query_rank(config: ZooConfig) -> int:
    """Width of the vector that queries are made of, 0 where there is none."""
    rank: int = option(config, LatentAttention, "q_lora_rank")
    return rank


def attention_scale(config: Any) -> float | str:
    """What scores are divided by: the root of the heads' width, less where wavelengths are stretched by YaRN.

    Args:
        config: A configuration of the zoo, or a native one.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    stretched = rope.get("rope_type", "default") != "default" and rope.get("mscale_all_dim")
    if not stretched or rope["factor"] <= 1:
        return AttentionScale.HEAD_DIM.value
    width = option(config, LatentAttention, "qk_nope_head_dim") + config.head_dim
    return math.sqrt(width) / (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1.0) ** 2


@native_format
class DeepseekV3(ExpertsLike):
    """DeepSeek-V3 (DeepSeek-AI 2024), without the modules that predict further tokens."""

    name = "deepseek_v3"
    variant = "deepseek-v3-style"
    fields = {
        **without(LlamaLike.fields, "layer_norm_eps", "num_key_value_heads"),
        **ATTENTION_BIAS,
        "head_dim": "qk_rope_head_dim",
        **{name: latent(name) for name in WIDTHS},
        "q_lora_rank": Field(
            "q_lora_rank", lambda native: native.q_lora_rank or 0, lambda config: query_rank(config) or None
        ),
        "position": choice("rope_interleave", "position", {"rotary-interleaved": True, "rotary": False}),
        "attention_scale": Field(
            "rope_parameters", attention_scale, lambda config: dict(config.rope_parameters), has=attention_scale
        ),
        "num_experts": setting("num_experts", "n_routed_experts"),
        "moe_intermediate_size": Field("moe_intermediate_size", write=inner_size),
        **{name: setting(name, part=SigmoidMixtureOfExperts) for name in (*ROUTING, *SHARED)},
    }
    always = {
        **without(ExpertsLike.always, "position"),
        **SAME_OUT_BIAS,
        "attention": "latent",
        "feed_forward": "moe-sigmoid",
        "layer_norm_eps": 1e-6,
        "num_key_value_heads": lambda config: config.num_attention_heads,
    }
    only = {"rms_norm_eps": 1e-6}  # of the norms on latent vectors, whatever the configuration says
    only_options = {}
    follows = {"num_key_value_heads": lambda config: config.num_attention_heads}
    reasons = {
        **ExpertsLike.reasons,
        "feed_forward": "its feed-forward network is a mixture of experts that sigmoids choose (moe-sigmoid)",
        "attention": "its keys and values are made of latent vectors",
    }

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        """The keys in a layer: queries are made of a latent vector, or of the token. Arguments as in the base class."""
        low_rank = {
            "self_attn.q_a_proj": "self_attn.q_a_proj",
            "self_attn.q_a_norm": "self_attn.q_a_layernorm",
            "self_attn.q_proj": "self_attn.q_b_proj",
        }
        return {
            **PRE_NORMS,
            **(low_rank if query_rank(config) else {"self_attn.q_proj": "self_attn.q_proj"}),
            "self_attn.kv_a_proj": "self_attn.kv_a_proj_with_mqa",
            "self_attn.kv_a_norm": "self_attn.kv_a_layernorm",
            "self_attn.kv_b_proj": "self_attn.kv_b_proj",
            "self_attn.o_proj": "self_attn.o_proj",
            **GATED,
            **EXPERTS,
            "mlp.router.balance_bias": "mlp.gate.e_score_correction_bias",
            **{f"mlp.shared_experts.{p}_proj": f"mlp.shared_experts.{p}_proj" for p in ("gate", "up", "down")},
        }
