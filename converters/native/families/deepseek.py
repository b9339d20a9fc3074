"""DeepSeek-V3: attention that caches latent vectors, and experts that sigmoids choose; these with plain attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import AttentionScale, LatentAttention, SigmoidMixtureOfExperts, ZooConfig
from zoo.models.attentions.latent import latent_norm_eps
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.parts import option

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import State
from ..common import without
from ..declared import Field, choice, same
from ..decoders import NOPE_BY_LAYER, PARTIAL_ROPE, ROPE, WINDOWS_BY_LAYER, whole_heads
from .experts import DENSE_FIRST, EXPERTS, LOCAL_EXPERTS, NORMALISED, ExpertsLike, setting
from .granite import divisor, multiplied
from .llama import ATTENTION, ATTENTION_BIAS, GATED, PRE_NORMS, QK_NORMS, LlamaLike

ROUTING = ("num_experts_per_tok", "output_router_logits", "norm_topk_prob", "first_k_dense_replace")
GROUPS = ("n_group", "topk_group", "routed_scaling_factor")


def shared_experts(config: ZooConfig) -> int:
    """Width of the shared expert, in widths of the others; 0 without one."""
    return option(config, SigmoidMixtureOfExperts, "n_shared_experts")


def at_least_one(native: Any) -> int:
    """The same of a native configuration."""
    given: int | None = getattr(native, "n_shared_experts", None) or getattr(native, "num_shared_experts", None)
    if not given:
        raise NoCounterpartError(native.model_type, ["n_shared_experts=0 is set, only an expert with channels can be"])
    return given


SIGMOID_ROUTING: Mapping[str, Field] = {
    "num_experts": setting("num_experts", "n_routed_experts"),
    "moe_intermediate_size": Field("moe_intermediate_size", write=inner_size),
    "n_shared_experts": Field("n_shared_experts", at_least_one, shared_experts),
    **{name: setting(name, part=SigmoidMixtureOfExperts) for name in (*ROUTING, *GROUPS)},
}
SIGMOID_EXPERTS: Keys = {
    **GATED,
    **EXPERTS,
    "mlp.router.balance_bias": "mlp.gate.e_score_correction_bias",
    **{f"mlp.shared_experts.{p}_proj": f"mlp.shared_experts.{p}_proj" for p in ("gate", "up", "down")},
}
"""Feed-forward networks without experts, and with: those that sigmoids choose, and that of all tokens."""

SIGMOID_REASONS = {
    **ExpertsLike.reasons,
    "feed_forward": "its feed-forward network is a mixture of experts that sigmoids choose (moe-sigmoid)",
}
WIDTHS = ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")
LATENT_NORM_EPS = 1e-6  # Epsilon of the norms on latent vectors, for any configuration


class SigmoidLike(ExpertsLike):
    """Base of classes with experts chosen by sigmoids, and a shared expert by default."""

    always = {**ExpertsLike.always, "feed_forward": "moe-sigmoid"}
    only_options = {}
    reasons = SIGMOID_REASONS

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        has_experts = config.feed_forward == self.always["feed_forward"] == "moe-sigmoid"
        if has_experts and "n_shared_experts" not in self.only_options and not shared_experts(config):
            found.append("n_shared_experts=0, here it is at least 1")
        return found


def query_rank(config: ZooConfig) -> int:
    """Width of the vector that queries are projected from, 0 without one."""
    return option(config, LatentAttention, "q_lora_rank")


def native_query_rank(native: Any) -> int:
    """The same of a native configuration, in which None is none."""
    if native.q_lora_rank == 0:
        raise NoCounterpartError(native.model_type, ["q_lora_rank=0 is set, only None or a positive number can be"])
    return native.q_lora_rank or 0


def rotation(native: Any, *, any_scheme: bool = False) -> dict[str, Any]:
    """Read the rotary settings of keys with a part that is rotated as a whole, as the class does by default."""
    rope = dict(native.rope_parameters)
    if not any_scheme or rope.get("partial_rotary_factor") == 1.0:
        rope = whole_heads(rope)
    if "partial_rotary_factor" in rope:
        given = f"partial_rotary_factor={rope['partial_rotary_factor']} is set with {rope['rope_type']!r} wavelengths"
        raise NoCounterpartError(native.model_type, [f"{given}, only the whole of qk_rope_head_dim can be rotated"])
    return rope


def attention_scale(config: Any) -> float | str:
    """Divisor of the scores: the root of the heads' width, less where wavelengths are stretched by YaRN."""
    rope = getattr(config, "rope_parameters", None) or {}
    stretched = rope.get("rope_type", "default") != "default" and rope.get("mscale_all_dim")
    if not stretched or rope["factor"] <= 1:
        return AttentionScale.HEAD_DIM.value
    width = option(config, LatentAttention, "qk_nope_head_dim") + config.head_dim
    return math.sqrt(width) / (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1.0) ** 2


class DeepseekV3(SigmoidLike, name="deepseek_v3", variant="deepseek-v3-style"):
    """DeepSeek-V3 (DeepSeek-AI 2024), without the modules that predict further tokens."""

    fields = {
        **without(LlamaLike.fields, "num_key_value_heads"),
        **ATTENTION_BIAS,
        "head_dim": "qk_rope_head_dim",
        "rope_parameters": Field("rope_parameters", rotation, ROPE.write),
        **{name: setting(name, part=LatentAttention) for name in WIDTHS},
        "latent_norm_eps": Field(
            "rms_norm_eps",
            lambda native: None if native.rms_norm_eps == LATENT_NORM_EPS else LATENT_NORM_EPS,
            lambda config: config.layer_norm_eps,
        ),
        "q_lora_rank": Field("q_lora_rank", native_query_rank, lambda config: query_rank(config) or None),
        "position": choice("rope_interleave", "position", {"rotary-interleaved": True, "rotary": False}),
        "attention_scale": Field(
            "rope_parameters", attention_scale, lambda config: dict(config.rope_parameters), has=attention_scale
        ),
        **SIGMOID_ROUTING,
    }
    always = {
        **without(SigmoidLike.always, "position"),
        "attention": "latent",
        "num_key_value_heads": lambda config: config.num_attention_heads,
    }
    follows = {"num_key_value_heads": lambda config: config.num_attention_heads}
    reasons = {**SIGMOID_REASONS, "attention": "its keys and values are made of latent vectors"}

    network: ClassVar[Keys] = SIGMOID_EXPERTS

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        if config.attention == self.always["attention"] and latent_norm_eps(config) != LATENT_NORM_EPS:
            eps = latent_norm_eps(config)
            found.append(f"norms on latent vectors have an epsilon of {eps:g}, here it is {LATENT_NORM_EPS:g}")
        return found

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        """The keys in a layer: queries are made of a latent vector, or of the token."""
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
            **self.network,
        }


class Glm4MoeLite(DeepseekV3, name="glm4_moe_lite"):
    """GLM-4.7-Flash (GLM team 2026), without the modules that predict further tokens: as DeepSeek-V3."""

    fields = {
        **DeepseekV3.fields,
        **DENSE_FIRST,
        "rope_parameters": Field("rope_parameters", lambda native: rotation(native, any_scheme=True), ROPE.write),
    }


class LatentLike(DeepseekV3, variant="llama-style", network=GATED):
    """Base of classes with latent attention and without experts."""

    fields = without(DeepseekV3.fields, *SIGMOID_ROUTING)
    always = {**DeepseekV3.always, "feed_forward": "gated"}
    reasons = {**LlamaLike.reasons, "attention": DeepseekV3.reasons["attention"]}


class Youtu(LatentLike, name="youtu"):
    """Youtu-LLM (Tencent 2025): DeepSeek-V3 without experts."""

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find a row that transformers 5.23 zeroes where it loads the class."""
        found = super().obstacles(config, state, task)
        padding, embedding = config.pad_token_id, state.get("model.embed_tokens.weight")
        if padding is not None and embedding is not None and embedding[padding].any():
            zeroed = "which the class makes it when it is loaded"
            found.append(f"the embedding of padding ({padding}) is not zero, {zeroed}")
        return found


def logit_scale(native: Any) -> float:
    """The factor on the logits; a tied embedding brings its own multiplier along."""
    scale: float = native.dim_model_base / native.hidden_size
    return scale / divisor(native, "scale_emb") if native.tie_word_embeddings else scale


def base_width(config: ZooConfig) -> int:
    """The width by which logits are scaled, a whole number."""
    return round(config.logit_scale * config.hidden_size)


def nearest_scale(config: ZooConfig) -> float:
    """The factor on the logits that a whole width gives: the given one but for rounding, or else none."""
    width = base_width(config)
    fits = width > 0 and math.isclose(width / config.hidden_size, config.logit_scale, rel_tol=1e-12)
    return config.logit_scale if fits else 1.0


class MiniCPM3(LatentLike, name="minicpm3"):
    """MiniCPM3 (OpenBMB 2024)."""

    fields = {
        **without(LatentLike.fields, "position"),
        **same("mlp_bias"),
        "logit_scale": Field("dim_model_base", logit_scale, base_width, has=nearest_scale),
    }
    always = {**LatentLike.always, "position": "rotary"}
    follows = dict(
        LatentLike.follows, scale_emb=lambda config: 1.0, scale_depth=lambda config: math.sqrt(config.num_hidden_layers)
    )

    def read_weights(self, native: Any, state: State, task: str) -> State:
        state = super().read_weights(native, state, task)
        return multiplied(state, native, native.scale_emb, native.scale_depth / math.sqrt(native.num_hidden_layers))


class SigmoidExpertsLike(SigmoidLike, variant="deepseek-moe"):
    """Base of classes with plain attention."""

    fields = {**LlamaLike.fields, **SIGMOID_ROUTING}
    layer = {**ATTENTION, **SIGMOID_EXPERTS, **PRE_NORMS}


class Dots1(SigmoidExpertsLike, name="dots1"):
    """dots.llm1 (rednote 2025): queries and keys normalised head by head, windows layer by layer."""

    fields = {**SigmoidExpertsLike.fields, **ATTENTION_BIAS, **WINDOWS_BY_LAYER}
    always = {**SigmoidExpertsLike.always, "qk_norm": "head"}
    layer = {**SigmoidExpertsLike.layer, **QK_NORMS}


class Glm4Moe(SigmoidExpertsLike, name="glm4_moe"):
    """GLM-4.5 (GLM team 2025), without the modules that predict further tokens: rotates a part of each head."""

    fields = {
        **SigmoidExpertsLike.fields,
        "attention_bias": "attention_bias",
        "rope_parameters": PARTIAL_ROPE,
        "qk_norm": choice("use_qk_norm", "qk_norm", {None: False, "head": True}),
    }
    follows = {"num_mtp_layers": lambda config: 0}
    layer = {**SigmoidExpertsLike.layer, **QK_NORMS}


class SolarOpen(SigmoidExpertsLike, name="solar_open"):
    """Solar Open (Upstage 2025): experts in every layer."""

    fields = {
        **without(SigmoidExpertsLike.fields, "first_k_dense_replace", "intermediate_size"),
        "attention_bias": "attention_bias",
    }
    only_options = dict(ExpertsLike.only_options)


class ExaoneMoe(SigmoidExpertsLike, name="exaone_moe"):
    """K-EXAONE (LG AI Research 2025): layers without a window have no positions."""

    fields = {
        **SigmoidExpertsLike.fields,
        **WINDOWS_BY_LAYER,
        "nope_layers": NOPE_BY_LAYER,
        "num_experts": setting("num_experts"),
        "n_shared_experts": Field("num_shared_experts", at_least_one, shared_experts),
        **DENSE_FIRST,
    }
    always = {**SigmoidExpertsLike.always, "qk_norm": "head"}
    layer = {**SigmoidExpertsLike.layer, **QK_NORMS}


class MiniMaxM2(SigmoidExpertsLike, name="minimax_m2", variant="mixtral-style"):
    """MiniMax-M2 (MiniMax 2025): norms on whole queries and keys, a part of each head rotated, no shared expert."""

    fields = {
        **LlamaLike.fields,
        **without(LOCAL_EXPERTS, "router_aux_loss_coef"),
        "n_shared_experts": Field("num_local_experts", lambda native: 0, LOCAL_EXPERTS["num_experts"].write),
        "rope_parameters": PARTIAL_ROPE,
    }
    always = {**SigmoidExpertsLike.always, "qk_norm": "full"}
    only = {"router_jitter_noise": 0.0}
    only_options = {**NORMALISED, "n_group": 1, "topk_group": 1, "n_shared_experts": 0, "routed_scaling_factor": 1.0}
    layer = {**ATTENTION, **EXPERTS, **PRE_NORMS, **QK_NORMS, "mlp.router.balance_bias": "mlp.e_score_correction_bias"}

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        lost = f"losses of {self.name} have an addend that balances experts, those of the zoo have none"
        found = [f"output_router_logits=True: {lost}"] if native.output_router_logits else []
        return found + super().differences(native, read, config)
