"""OLMo and nanochat: norms that have no weights, which are ones in the zoo."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig

from ...errors import NoCounterpartError
from ...symmetries.base import NORM_WEIGHTS, State
from ...transforms import Transform, each
from ..common import mlp, without
from ..declared import EMBEDDING_NORM, Field, biasless, same
from ..decoders import ROPE, whole_heads, width_of_heads
from .llama import ATTENTION, ATTENTION_BIAS, GATED, PRE_NORMS, QK_NORMS, LlamaLike


class Weightless(LlamaLike, untrained="weights of norms"):
    """Base of both."""

    def read_weights(self, native: Any, state: State, task: str) -> State:
        state = super().read_weights(native, state, task)
        like, head_dim = state["model.embed_tokens.weight"], width_of_heads(native)
        widths = {f"{name}.weight": native.hidden_size for name in PRE_NORMS.values()}
        widths |= {f"{name}.weight": head_dim for zoo, name in QK_NORMS.items() if zoo in self.layer}
        sizes = {f"layers.{n}.{name}": size for n in range(native.num_hidden_layers) for name, size in widths.items()}
        sizes |= {f"{name}.weight": native.hidden_size for name in ("norm", "embedding_norm") if name in str(self.body)}
        return {**state, **{f"model.{name}": like.new_ones(size) for name, size in sizes.items()}}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        state = super().write_weights(config, state, task)
        return {name: value for name, value in state.items() if not name.endswith("norm.weight")}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        if any(re.search(NORM_WEIGHTS, name) and (value != 1).any() for name, value in state.items()):
            found.append("its norms have weights, which this class's lack")
        return found


class Olmo(Weightless, name="olmo", untrained="weights and biases of norms", biased_norms=False):
    """OLMo (Groeneveld et al. 2024): layer norms without weights and biases."""

    fields = {**without(LlamaLike.fields, "layer_norm_eps"), **ATTENTION_BIAS}
    always = {**LlamaLike.always, "norm": "layernorm", "layer_norm_eps": 1e-5}
    only = {"clip_qkv": None}
    body = {"embed_tokens": "embed_tokens", **biasless({"norm": "norm"})}
    layer = {**ATTENTION, **GATED, **biasless(PRE_NORMS)}


def swapped_halves(heads: int) -> Transform:
    """Transform: swap the halves of every head, which reverses rotations."""

    def swap(tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (heads, 2, -1)).flip(1).flatten(0, 2)

    return each("swap the halves of", swap, swap)


def unscaled(rope: Any) -> Any:
    """Rotary settings without the attention factor of YaRN and LongRoPE, which a norm after the rotation undoes."""
    return {**rope, "attention_factor": 1.0} if rope and rope.get("rope_type") in ("yarn", "longrope") else rope


def normed_after(native: Any) -> Any:
    """Rotary settings of nanochat; their attention factor matters next to a norm's epsilon that is not small."""
    rope = whole_heads(native.rope_parameters)
    if unscaled(rope) != rope and native.rms_norm_eps > 1e-6:
        lacks = f"rms_norm_eps={native.rms_norm_eps} is added to queries and keys that {rope['rope_type']} has scaled"
        raise NoCounterpartError(native.model_type, [f"{lacks}; only up to 1e-6 does the norm undo the scale"])
    return unscaled(rope)


class NanoChat(Weightless, name="nanochat", variant="nanochat-style"):
    """nanochat (Karpathy 2025): also a norm on the embeddings and, rotated the other way, on queries and keys."""

    fields = {
        **LlamaLike.fields,
        **ATTENTION_BIAS,
        **same("final_logit_softcapping"),
        "rope_parameters": Field("rope_parameters", normed_after, ROPE.write),
    }
    always = {**LlamaLike.always, "feed_forward": "mlp", "qk_norm": "head", **EMBEDDING_NORM}
    body = {**LlamaLike.body, "embedding_norm": "embedding_norm"}
    layer = {
        "self_attn.q_proj": ("self_attn.q_proj", lambda config: swapped_halves(config.num_attention_heads)),
        "self_attn.k_proj": ("self_attn.k_proj", lambda config: swapped_halves(config.num_key_value_heads)),
        **without(ATTENTION, "self_attn.q_proj", "self_attn.k_proj"),
        **QK_NORMS,
        **mlp("mlp.fc1", "mlp.fc2"),
        **PRE_NORMS,
    }

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        rope = getattr(config, "rope_parameters", None)
        if rope is not None and unscaled(rope) != rope:
            found.append(f"rotations scale queries and keys ({rope['rope_type']}), which its norms after them undo")
        return found
