"""Decoders with experts that sigmoids choose, as in DeepSeek-V3, and with plain attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models import ZooConfig

from ..declared import Field, choice, without
from ..decoders import NOPE_BY_LAYER, PARTIAL_ROPE, WINDOWS_BY_LAYER
from .deepseek import SIGMOID_EXPERTS, SIGMOID_ROUTING, SigmoidLike, at_least_one, shared_experts
from .experts import DENSE_FIRST, EXPERTS, LOCAL_EXPERTS, NORMALISED, ExpertsLike, setting
from .llama import ATTENTION, ATTENTION_BIAS, PRE_NORMS, QK_NORMS, SAME_OUT_BIAS, LlamaLike


class SigmoidExpertsLike(SigmoidLike):
    """Base of these classes."""

    variant = "deepseek-moe"
    fields = {**LlamaLike.fields, **SIGMOID_ROUTING}
    layer = {**ATTENTION, **SIGMOID_EXPERTS, **PRE_NORMS}


class Dots1(SigmoidExpertsLike):
    """dots.llm1 (rednote 2025): queries and keys normalised head by head, windows layer by layer."""

    name = "dots1"
    fields = {**SigmoidExpertsLike.fields, **ATTENTION_BIAS, **WINDOWS_BY_LAYER}
    always = {**SigmoidExpertsLike.always, **SAME_OUT_BIAS, "qk_norm": "head"}
    layer = {**SigmoidExpertsLike.layer, **QK_NORMS}


class Glm4Moe(SigmoidExpertsLike):
    """GLM-4.5 (GLM team 2025), without the modules that predict further tokens: rotates a part of each head."""

    name = "glm4_moe"
    fields = {
        **SigmoidExpertsLike.fields,
        "attention_bias": "attention_bias",
        "rope_parameters": PARTIAL_ROPE,
        "qk_norm": choice("use_qk_norm", "qk_norm", {None: False, "head": True}),
    }
    follows = {"num_mtp_layers": lambda config: 0}
    layer = {**SigmoidExpertsLike.layer, **QK_NORMS}


class SolarOpen(SigmoidExpertsLike):
    """Solar Open (Upstage 2025): experts in every layer."""

    name = "solar_open"
    fields = {
        **without(SigmoidExpertsLike.fields, "first_k_dense_replace", "intermediate_size"),
        "attention_bias": "attention_bias",
    }
    only_options = dict(ExpertsLike.only_options)


class ExaoneMoe(SigmoidExpertsLike):
    """K-EXAONE (LG AI Research 2025): layers without a window have no positions."""

    name = "exaone_moe"
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


class MiniMaxM2(SigmoidExpertsLike):
    """MiniMax-M2 (MiniMax 2025): norms on whole queries and keys, a part of each head rotated, no shared expert."""

    name = "minimax_m2"
    variant = "mixtral-style"
    fields = {
        **LlamaLike.fields,
        **without(LOCAL_EXPERTS, "router_aux_loss_coef"),
        "n_shared_experts": Field("num_local_experts", lambda native: 0, LOCAL_EXPERTS["num_experts"].write),
        "rope_parameters": PARTIAL_ROPE,
    }
    always = {**SigmoidExpertsLike.always, "qk_norm": "full"}
    only = {"router_jitter_noise": 0.0}
    only_options = {
        **NORMALISED,
        **dict.fromkeys(("n_group", "topk_group"), 1),
        "n_shared_experts": 0,
        "routed_scaling_factor": 1.0,
    }
    layer = {**ATTENTION, **EXPERTS, **PRE_NORMS, **QK_NORMS, "mlp.router.balance_bias": "mlp.e_score_correction_bias"}

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        lost = f"losses of {self.name} have an addend that balances experts, those of the zoo have none"
        found = [f"output_router_logits=True: {lost}"] if native.output_router_logits else []
        return found + super().differences(native, read, config)
