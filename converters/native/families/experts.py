"""Decoders with mixtures of experts that a softmax chooses: Mixtral, Qwen3-MoE, gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import ClampedMixtureOfExperts, MixtureOfExperts, SharedMixtureOfExperts, ZooConfig
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.parts import FEED_FORWARDS, option

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import State
from ...transforms import TRANSPOSE, Transform, evens_then_odds, permute
from ..common import without
from ..declared import Field
from ..decoders import ONE_WINDOW, ROPE_BY_LAYER, WINDOWS_BY_LAYER
from .llama import ATTENTION, ATTENTION_BIAS, BRANCH_NORMS, GATED, PRE_NORMS, QK_NORMS, LlamaLike, Qwen2

EXPERTS: Keys = {
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.experts.gate_up_proj": "mlp.experts.gate_up_proj",
    "mlp.experts.down_proj": "mlp.experts.down_proj",
}


def setting(name: str, native: str | None = None, part: type = MixtureOfExperts) -> Field:
    """A setting of a part, by default the feed-forward one, which a configuration has only where it was given."""
    return Field(native or name, write=lambda config: option(config, part, name))


SHARED_EXPERT: Keys = {  # The expert of all tokens, and its gate
    **{f"mlp.shared_expert.{p}_proj": f"mlp.shared_expert.{p}_proj" for p in ("gate", "up", "down")},
    "mlp.shared_expert_gate.weight": "mlp.shared_expert_gate.weight",
}

ROUTING: Mapping[str, Field] = {
    name: setting(name) for name in ("num_experts_per_tok", "router_aux_loss_coef", "output_router_logits")
}

EXPERT_SIZES: Mapping[str, Field] = {
    **ROUTING,
    "num_experts": setting("num_experts"),
    "norm_topk_prob": setting("norm_topk_prob"),
    "moe_intermediate_size": Field("moe_intermediate_size", write=inner_size),
}
SHARED_SIZE: Mapping[str, Field] = {
    "shared_expert_intermediate_size": Field(
        "shared_expert_intermediate_size", write=SharedMixtureOfExperts.shared_size
    )
}
LOCAL_EXPERTS: Mapping[str, Field] = {  # Experts with the feed-forward networks' own setting as width
    **ROUTING,
    "num_experts": setting("num_experts", "num_local_experts"),
    "intermediate_size": Field("intermediate_size", write=inner_size),
}


def leading_dense_layers(native: Any) -> int:
    """How many layers have no experts, which must be the first ones."""
    kinds = list(native.mlp_layer_types)
    dense = kinds.count("dense")
    if kinds != ["dense"] * dense + ["sparse"] * (len(kinds) - dense):
        lacks = f"mlp_layer_types={kinds} is set, only the first layers can be without experts"
        raise NoCounterpartError(native.model_type, [lacks])
    return dense


def kinds_of_networks(config: ZooConfig) -> list[str]:
    """Which layers have experts, in the class's words."""
    dense = option(config, MixtureOfExperts, "first_k_dense_replace")
    return ["dense" if layer < dense else "sparse" for layer in range(config.num_hidden_layers)]


DENSE_FIRST: Mapping[str, Field] = {  # Layers without experts, in a class that names the kind of every layer
    "first_k_dense_replace": Field("mlp_layer_types", leading_dense_layers, kinds_of_networks)
}


class ExpertsLike(LlamaLike):
    """Base of these classes."""

    only_options: ClassVar[Mapping[str, Any]] = {"first_k_dense_replace": 0}
    always = {**LlamaLike.always, "feed_forward": "moe", "mlp_inner_norm": False}
    layer = {**ATTENTION, **EXPERTS, **PRE_NORMS}
    reasons = {**LlamaLike.reasons, "feed_forward": "its feed-forward network is a mixture of experts (moe)"}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        if config.feed_forward == self.always["feed_forward"]:
            part = FEED_FORWARDS.get(config.feed_forward)
            for name, only in self.only_options.items():
                if (given := option(config, part, name)) != only:
                    found.append(f"{name}={given}, here it is {only}")
        return found


NORMALISED = {**ExpertsLike.only_options, "norm_topk_prob": True}
"""The same where weights of the experts that a token sees always sum to one."""


class Mixtral(ExpertsLike, name="mixtral", rank=74, variant="mixtral-style", only_options=NORMALISED):
    """Mixtral (Jiang et al. 2024): one sliding window, or none, for all layers."""

    fields = {**LlamaLike.fields, **ONE_WINDOW, **LOCAL_EXPERTS}
    only = {"router_jitter_noise": 0.0}


class Qwen3Moe(ExpertsLike, name="qwen3_moe", rank=94, variant="qwen3-moe-style"):
    """Qwen3-MoE (Yang et al. 2025): queries and keys normalised head by head, experts in every layer."""

    fields = {**LlamaLike.fields, **ATTENTION_BIAS, **EXPERT_SIZES}
    always = {**ExpertsLike.always, "qk_norm": "head"}
    only = {"use_sliding_window": False, "decoder_sparse_step": 1, "mlp_only_layers": []}
    layer = {**ExpertsLike.layer, **QK_NORMS}


class Mellum(Qwen3Moe, name="mellum"):
    """Mellum 2 (JetBrains 2026), without the layer that predicts further tokens: windows and wavelengths by layer."""

    fields = {**Qwen3Moe.fields, **WINDOWS_BY_LAYER, **ROPE_BY_LAYER, **DENSE_FIRST}
    only = {}
    only_options = {}
    layer = {**Qwen3Moe.layer, **GATED}


class Qwen2Moe(ExpertsLike, name="qwen2_moe", variant="qwen3-moe-style"):
    """Qwen2-MoE (Qwen team 2024): biases on queries, keys and values, a gated shared expert, windows by layer."""

    fields = {**LlamaLike.fields, **EXPERT_SIZES, **WINDOWS_BY_LAYER, **SHARED_SIZE, "attention_bias": "qkv_bias"}
    always = {**ExpertsLike.always, "feed_forward": "moe-shared"}
    only = {"decoder_sparse_step": 1, "mlp_only_layers": []}
    follows = Qwen2.follows
    layer = {**ExpertsLike.layer, **SHARED_EXPERT}
    reasons = {**ExpertsLike.reasons, "feed_forward": "it has an expert that every token sees, and a gate (moe-shared)"}


class Olmoe(ExpertsLike, name="olmoe", variant="mixtral-style"):
    """OLMoE (Muennighoff et al. 2024): norms on whole queries and keys."""

    fields = {
        **without(LlamaLike.fields, "head_dim"),
        **ATTENTION_BIAS,
        **LOCAL_EXPERTS,
        "num_experts": setting("num_experts"),
        "norm_topk_prob": setting("norm_topk_prob"),
    }
    always = {**ExpertsLike.always, "qk_norm": "full"}
    only = {"clip_qkv": None}
    layer = {**ExpertsLike.layer, **QK_NORMS}


class FlexOlmo(Olmoe, name="flex_olmo", variant="olmo2-style"):
    """FlexOlmo (Shi et al. 2025): norms on the branches' outputs."""

    always = {**Olmoe.always, "norm_placement": "res-post"}
    only = {}
    layer = {**ATTENTION, **EXPERTS, **QK_NORMS, **BRANCH_NORMS}


def side_by_side(config: ZooConfig) -> Transform:
    """Gates and inputs of experts that the class has in turns, one after the other."""
    return permute(evens_then_odds(2 * inner_size(config)))


class GptOss(ExpertsLike, name="gpt_oss", variant="gpt-oss-style", only_options=NORMALISED):
    """gpt-oss (OpenAI 2025): sinks in attention, windows layer by layer, clamped experts with biases."""

    fields = {
        **LlamaLike.fields,
        **ATTENTION_BIAS,
        **WINDOWS_BY_LAYER,
        **LOCAL_EXPERTS,
        **{name: setting(name, part=ClampedMixtureOfExperts) for name in ("swiglu_alpha", "swiglu_limit")},
    }
    always = {**ExpertsLike.always, "attention": "sinks", "feed_forward": "moe-clamped", "mlp_bias": True}
    layer = {
        **ATTENTION,
        **PRE_NORMS,
        "self_attn.sinks": "self_attn.sinks",
        "mlp.router": "mlp.router",
        "mlp.experts.gate_up_proj": (
            "mlp.experts.gate_up_proj",
            lambda config: side_by_side(config).then(TRANSPOSE),
        ),
        "mlp.experts.gate_up_proj_bias": ("mlp.experts.gate_up_proj_bias", side_by_side),
        "mlp.experts.down_proj": ("mlp.experts.down_proj", TRANSPOSE),
        "mlp.experts.down_proj_bias": "mlp.experts.down_proj_bias",
    }
    reasons = {
        **ExpertsLike.reasons,
        "feed_forward": "its feed-forward network is a mixture of clamped experts (moe-clamped)",
        "attention": "its attention has sinks",
    }
