"""Granite, with and without experts, and HyperCLOVA X: multipliers (muP), folded into weights that the zoo has."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling

from ...errors import NoCounterpartError
from ...symmetries.base import State
from ..common import changed_exactly, norms, without
from ..declared import Field, choice
from ..decoders import ROPE, WINDOWS_BY_LAYER, whole_heads
from .experts import LOCAL_EXPERTS, NORMALISED, ExpertsLike
from .llama import ATTENTION, PRE_NORMS, Llama, LlamaLike

ON_THE_STREAM = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "experts.down_proj")
"""Suffixes of weights that write onto the residual stream, with no norm after them."""


def divisor(native: Any, name: str) -> float:
    """A number of a class that the zoo's is divided by; NoCounterpartError for zero."""
    found: float = getattr(native, name)
    if not found:
        lacks = f"{name}={found} is set, only other numbers than 0 can be converted"
        raise NoCounterpartError(native.model_type, [lacks])
    return found


def logit_scale(native: Any) -> float:
    """The factor on the logits; a tied embedding brings its own multiplier along."""
    embedding = divisor(native, "embedding_multiplier") if native.tie_word_embeddings else 1.0
    return 1.0 / divisor(native, "logits_scaling") / embedding


def not_zero(config: ZooConfig) -> float:
    """The factor on the logits that a class has; zero is moved into the weights."""
    return config.logit_scale or 1.0


def multiplied(state: State, native: Any, embedding: float, residual: float) -> State:
    """Multiply what a class multiplies besides into its weights."""
    factors = {"model.embed_tokens.weight": embedding}
    if native.tie_word_embeddings:
        factors["lm_head.weight"] = embedding
    last: tuple[str, ...] = ON_THE_STREAM
    if "model.layers.0.post_norm1.weight" in state:
        last = ("post_norm1.weight", "post_norm2.weight")
    factors |= dict.fromkeys((name for name in state if name.endswith(last)), residual)
    factors = {name: factor for name, factor in factors.items() if name in state and factor != 1.0}
    if not factors:
        return state

    def change(state: State) -> State:
        return {**state, **{name: state[name] * factor for name, factor in factors.items()}}

    return changed_exactly(state, change, native.model_type)


class Multiplied(Llama):
    """Base of these classes."""

    fields = {
        **Llama.fields,
        "attention_scale": Field(
            "attention_multiplier", lambda native: 1.0 / divisor(native, "attention_multiplier"), attention_scaling
        ),
        "logit_scale": Field("logits_scaling", logit_scale, lambda config: 1.0 / config.logit_scale, has=not_zero),
    }
    follows = dict.fromkeys(("embedding_multiplier", "residual_multiplier"), lambda config: 1.0)

    def read_weights(self, native: Any, state: State, task: str) -> State:
        state = super().read_weights(native, state, task)
        return multiplied(state, native, native.embedding_multiplier, native.residual_multiplier)


class Granite(Multiplied, name="granite"):
    """Granite 3 (IBM 2024)."""


class GraniteMoe(Multiplied, ExpertsLike, name="granitemoe", variant="mixtral-style", only_options=NORMALISED):
    """Granite 3 with experts (IBM 2024): the softmax is over those that a token sees."""

    fields = {**without(Multiplied.fields, "mlp_bias"), **LOCAL_EXPERTS}
    always = ExpertsLike.always
    layer = {
        **ATTENTION,
        **PRE_NORMS,
        "mlp.router.weight": "block_sparse_moe.router.weight",
        **{f"mlp.experts.{p}_proj": f"block_sparse_moe.experts.{p}_proj" for p in ("gate_up", "down")},
    }
    reasons = ExpertsLike.reasons


def one_wavelength(native: Any) -> dict[str, Any]:
    """Read the rotary settings of a class that has a base for every layer, zero for layers without positions."""
    bases = {base for base in native.layer_rope_theta if base}
    if len(bases) > 1:
        given = f"layer_rope_theta={native.layer_rope_theta} is set"
        raise NoCounterpartError(native.model_type, [f"{given}, layers with positions can have one base only"])
    return {**whole_heads(native.rope_parameters), **({"rope_theta": bases.pop()} if bases else {})}


def bases(config: ZooConfig) -> list[float]:
    base = config.rope_parameters["rope_theta"]
    return [0 if nope else base for nope in config.nope_layers or [False] * config.num_hidden_layers]


class GraniteSwa(Multiplied, name="granite_swa"):
    """Granite Swash (IBM 2026): sinks in attention, windows layer by layer, and layers without positions."""

    fields = {
        **Multiplied.fields,
        **WINDOWS_BY_LAYER,
        "rope_parameters": Field("rope_parameters", one_wavelength, ROPE.write),
        "nope_layers": Field(
            "layer_rope_theta",
            lambda native: None if all(native.layer_rope_theta) else [not base for base in native.layer_rope_theta],
            bases,
        ),
    }
    always = {**Multiplied.always, "attention": "sinks"}
    layer = {**Multiplied.layer, "self_attn.sinks": "self_attn.sinks"}
    reasons = {**Multiplied.reasons, "attention": "its attention has sinks"}


class HyperClovaX(Multiplied, name="hyperclovax"):
    """HyperCLOVA X SEED (NAVER 2025): logits are multiplied, and norms may follow the sublayers too."""

    fields = {
        **Multiplied.fields,
        "logit_scale": Field(
            "logits_scaling",
            lambda native: logit_scale(native) * native.logits_scaling**2,
            lambda config: config.logit_scale,
            has=not_zero,
        ),
        "norm_placement": choice("use_post_norm", "norm_placement", {"sandwich": True, "pre": False}),
    }
    layer = {**LlamaLike.layer, **norms("post_norm1", "post_norm2", "norm_branch")}
