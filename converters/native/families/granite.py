"""Granite, with and without experts, and HyperCLOVA X: multipliers (muP), folded into weights that the zoo has."""

from __future__ import annotations

from typing import Any

from zoo.models.attention import attention_scaling

from ...symmetries.base import State
from ..base import native_format
from ..declared import Field, choice, without
from ..folding import changed_exactly
from .experts import LOCAL_EXPERTS, NORMALISED, ExpertsLike
from .llama import ATTENTION, PRE_NORMS, SAME_OUT_BIAS, Llama, LlamaLike

ON_THE_STREAM = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "experts.down_proj")
"""What the names of weights end with that write onto the residual stream, where no norm stands behind them."""


def logit_scale(native: Any) -> float:
    """The factor on the logits; a tied embedding brings its own multiplier along."""
    return 1.0 / native.logits_scaling / (native.embedding_multiplier if native.tie_word_embeddings else 1.0)


class Multiplied(Llama):
    """What these classes have in common."""

    fields = {
        **Llama.fields,
        "attention_scale": Field(
            "attention_multiplier", lambda native: 1.0 / native.attention_multiplier, attention_scaling
        ),
        "logit_scale": Field("logits_scaling", logit_scale, lambda config: 1.0 / config.logit_scale),
    }
    follows = dict.fromkeys(("embedding_multiplier", "residual_multiplier"), lambda config: 1.0)

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Multiply the embeddings and what is written onto the residual stream. Arguments as in the base class."""
        state = super().read_weights(native, state, task)
        factors = {"model.embed_tokens.weight": native.embedding_multiplier}
        if native.tie_word_embeddings:
            factors["lm_head.weight"] = native.embedding_multiplier
        last: tuple[str, ...] = ON_THE_STREAM
        if "model.layers.0.post_norm1.weight" in state:
            last = ("post_norm1.weight", "post_norm2.weight")
        factors |= dict.fromkeys((name for name in state if name.endswith(last)), native.residual_multiplier)
        factors = {name: factor for name, factor in factors.items() if name in state and factor != 1.0}
        if not factors:
            return state

        def multiplied(state: State) -> State:
            return {**state, **{name: state[name] * factor for name, factor in factors.items()}}

        return changed_exactly(state, multiplied, self.name)


@native_format
class Granite(Multiplied):
    """Granite 3 (IBM 2024)."""

    name = "granite"


@native_format
class GraniteMoe(Multiplied, ExpertsLike):
    """Granite 3 with experts (IBM 2024): the softmax is over those that a token sees."""

    name = "granitemoe"
    variant = "mixtral-style"
    fields = {**without(Multiplied.fields, "mlp_bias"), **LOCAL_EXPERTS}
    always = {**ExpertsLike.always, **SAME_OUT_BIAS}
    only_options = NORMALISED
    layer = {
        **ATTENTION,
        **PRE_NORMS,
        "mlp.router.weight": "block_sparse_moe.router.weight",
        **{f"mlp.experts.{p}_proj": f"block_sparse_moe.experts.{p}_proj" for p in ("gate_up", "down")},
    }
    reasons = ExpertsLike.reasons


@native_format
class HyperClovaX(Multiplied):
    """HyperCLOVA X SEED (NAVER 2025): logits are multiplied, and norms may stand after the sublayers too."""

    name = "hyperclovax"
    fields = {
        **Multiplied.fields,
        "logit_scale": Field(
            "logits_scaling",
            lambda native: logit_scale(native) * native.logits_scaling**2,
            lambda config: config.logit_scale,
        ),
        "norm_placement": choice("use_post_norm", "norm_placement", {"sandwich": True, "pre": False}),
    }
    layer = {
        **LlamaLike.layer,
        "self_attn_residual.norm_branch": "post_norm1",
        "mlp_residual.norm_branch": "post_norm2",
    }
