"""Decoders whose feed-forward networks are mixtures of experts: Mixtral and Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.models import MixtureOfExperts, ZooConfig
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.parts import option

from ...symmetries.base import State
from ..base import native_format
from ..declared import Field, Keys
from ..decoders import ONE_WINDOW
from .llama import ATTENTION, ATTENTION_BIAS, PRE_NORMS, QK_NORMS, SAME_OUT_BIAS, LlamaLike

EXPERTS: Keys = {
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.experts.gate_up_proj": "mlp.experts.gate_up_proj",
    "mlp.experts.down_proj": "mlp.experts.down_proj",
}


def setting(name: str, native: str | None = None) -> Field:
    """A setting of the feed-forward part, which a configuration has only where it was given.

    Args:
        name: The zoo's name.
        native: The native one, by default the same.
    """
    return Field(native or name, write=lambda config: option(config, MixtureOfExperts, name))


ROUTING: Mapping[str, Field] = {
    name: setting(name) for name in ("num_experts_per_tok", "router_aux_loss_coef", "output_router_logits")
}


class ExpertsLike(LlamaLike):
    """What both have in common."""

    always = {**LlamaLike.always, "feed_forward": "moe", "mlp_inner_norm": False}
    layer = {**ATTENTION, **EXPERTS, **PRE_NORMS}
    reasons = {**LlamaLike.reasons, "feed_forward": "its feed-forward network is a mixture of experts (moe)"}


@native_format
class Mixtral(ExpertsLike):
    """Mixtral (Jiang et al. 2024): one sliding window, or none, for all layers."""

    name = "mixtral"
    rank = 74
    variant = "mixtral-style"
    fields = {
        **LlamaLike.fields,
        **ONE_WINDOW,
        **ROUTING,
        "num_experts": setting("num_experts", "num_local_experts"),
        "intermediate_size": Field("intermediate_size", write=inner_size),
    }
    only = {"router_jitter_noise": 0.0}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find weights of experts whose sum is not one. Arguments as in the base class."""
        found = super().obstacles(config, state, task)
        if config.feed_forward == "moe" and not option(config, MixtureOfExperts, "norm_topk_prob"):
            found.append("norm_topk_prob=False, its experts' weights have a sum of one")
        return found


@native_format
class Qwen3Moe(ExpertsLike):
    """Qwen3-MoE (Yang et al. 2025): queries and keys normalised head by head, experts in every layer."""

    name = "qwen3_moe"
    rank = 94
    variant = "qwen3-moe-style"
    fields = {
        **LlamaLike.fields,
        **ATTENTION_BIAS,
        **ROUTING,
        "num_experts": setting("num_experts"),
        "norm_topk_prob": setting("norm_topk_prob"),
        "moe_intermediate_size": Field("moe_intermediate_size", write=inner_size),
    }
    always = {**ExpertsLike.always, **SAME_OUT_BIAS, "qk_norm": "head"}
    only = {"use_sliding_window": False, "decoder_sparse_step": 1, "mlp_only_layers": []}
    layer = {**ExpertsLike.layer, **QK_NORMS}
