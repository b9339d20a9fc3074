"""Llama and what is written like it or differs in a line or two, Phi, Command R, OLMo and nanochat among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import NORM_WEIGHTS, State
from ...transforms import Transform, each, split, split_rows
from ..common import attention, mlp, norms, without
from ..declared import ALL_BIASES, EMBEDDING_NORM, SIZES, Field, biasless, choice, one_bias, same
from ..decoders import (
    CLASSIFIER_DROPOUT,
    HEAD_DIM,
    NOPE_BY_LAYER,
    ONE_WINDOW,
    PARTIAL_ROPE,
    PROJECTIONS,
    ROPE,
    ROPE_BY_LAYER,
    WHOLE_ROPE,
    WINDOWS_BY_LAYER,
    DecoderFormat,
    sliding_window,
    whole_heads,
    whole_text,
    width_of_heads,
)

DECODER_SIZES: Mapping[str, str | Field] = {
    **SIZES,
    **same("num_key_value_heads", "intermediate_size", "hidden_act", "max_position_embeddings", "initializer_range"),
    **same("attention_dropout"),
    "head_dim": HEAD_DIM,
}
ATTENTION: Keys = {f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkvo"}
QK_NORMS: Keys = {f"self_attn.{p}_norm": f"self_attn.{p}_norm" for p in "qk"}
QK_LAYERNORMS: Keys = {f"self_attn.{p}_norm": f"self_attn.{p}_layernorm" for p in "qk"}
GATED: Keys = {f"mlp.{p}_proj": f"mlp.{p}_proj" for p in ("gate", "up", "down")}
PRE_NORMS: Keys = norms("input_layernorm", "post_attention_layernorm")
NO_BIASES = dict.fromkeys(ALL_BIASES, False)
ATTENTION_BIAS: Mapping[str, str | Field] = one_bias("attention_bias", ("attention_bias", "attention_out_bias"))
"""One setting for the biases of all four projections."""


class LlamaLike(DecoderFormat, variant="llama-style"):
    """Base of the family; differences are in a table of each class."""

    fields = dict(
        DECODER_SIZES, layer_norm_eps="rms_norm_eps", rope_parameters=ROPE, classifier_dropout=CLASSIFIER_DROPOUT
    )
    always = {"norm": "rmsnorm", "position": "rotary", "feed_forward": "gated", **NO_BIASES}
    body = {"embed_tokens": "embed_tokens", "norm": "norm"}
    layer = {**ATTENTION, **GATED, **PRE_NORMS}
    reasons = {
        "lm_head_bias": "its output projection has no bias",
        "feed_forward": "its feed-forward network is gated",
        "norm": "it has RMSNorm",
    }


class Llama(LlamaLike, name="llama", rank=60):
    """Llama (Touvron et al. 2023)."""

    model_types = ("llama", "internlm3", "iquestcoder")
    fields = {**LlamaLike.fields, **ATTENTION_BIAS, **same("mlp_bias")}


class Mistral(LlamaLike, name="mistral", rank=70):
    """Mistral (Jiang et al. 2023): one sliding window for all layers, for any `layer_types`."""

    fields = {**LlamaLike.fields, **ONE_WINDOW}


class Qwen2(LlamaLike, name="qwen2", rank=80):
    """Qwen2 (Yang et al. 2024): biases on queries, keys and values, windows layer by layer."""

    fields = {**LlamaLike.fields, **WINDOWS_BY_LAYER}
    follows = {"use_sliding_window": lambda config: config.sliding_window is not None}
    always = {**LlamaLike.always, "attention_bias": True}


class Qwen3(LlamaLike, name="qwen3", rank=90, variant="qwen3-style"):
    """Qwen3 (Yang et al. 2025): queries and keys normalised head by head."""

    fields = {**Qwen2.fields, **ATTENTION_BIAS}
    follows = Qwen2.follows
    always = {**LlamaLike.always, "qk_norm": "head"}
    layer = {**LlamaLike.layer, **QK_NORMS}


JOINED_GATE = {("mlp.gate_proj", "mlp.up_proj"): ("mlp.gate_up_proj", split(2)), "mlp.down_proj": "mlp.down_proj"}


def normed_width(config: ZooConfig) -> int:
    """The width of a head, which norms on queries and keys take for a share of the model's."""
    return int(config.head_dim if config.qk_norm is None else config.hidden_size // config.num_attention_heads)


class Phi(DecoderFormat, name="phi", variant="gptj-style"):
    """Phi-1 to Phi-2 (Gunasekar et al. 2023)."""

    fields = {
        **DECODER_SIZES,
        "layer_norm_eps": "layer_norm_eps",
        "rope_parameters": PARTIAL_ROPE,
        "dropout": "resid_pdrop",
        "qk_norm": choice("qk_layernorm", "qk_norm", {None: False, "head": True}),
        "head_dim": Field("head_dim", HEAD_DIM.read, has=normed_width),
    }
    always = {"position": "rotary", "parallel_residual": True, "lm_head_bias": True}
    follows = {"embd_pdrop": lambda config: config.dropout}
    body = {"embed_tokens": "embed_tokens", "norm": "final_layernorm"}
    layer = {
        "residual.norm_in": "input_layernorm",
        **attention("self_attn.{q}_proj", "self_attn.dense"),
        **QK_LAYERNORMS,
        **mlp("mlp.fc1", "mlp.fc2"),
    }


ORIGINAL = "original_max_position_embeddings"


class Phi3(LlamaLike, name="phi3"):
    """Phi-3 and Phi-4 (Abdin et al. 2024)."""

    fields = {**LlamaLike.fields, **ONE_WINDOW, "rope_parameters": PARTIAL_ROPE, "dropout": "resid_pdrop"}
    # The class takes it for the one of `rope_parameters`, and has 4096 by default.
    follows = {ORIGINAL: lambda config: config.rope_parameters.get(ORIGINAL, config.max_position_embeddings)}
    layer = {
        PROJECTIONS: (
            "self_attn.qkv_proj",
            lambda config: split_rows((config.num_attention_heads, *[config.num_key_value_heads] * 2)),
        ),
        "self_attn.o_proj": "self_attn.o_proj",
        **JOINED_GATE,
        **PRE_NORMS,
    }


INTERLEAVED = {"position": "rotary-interleaved"}


class Helium(LlamaLike, name="helium"):
    """Helium (Kyutai 2025): rotates neighbouring columns."""

    fields = {**without(LlamaLike.fields, "head_dim"), **same("attention_bias", "mlp_bias")}
    always = {**LlamaLike.always, **INTERLEAVED}
    follows = {"head_dim": lambda config: config.head_dim}


class Ernie45(LlamaLike, name="ernie4_5"):
    """ERNIE 4.5 (Baidu 2025), dense: rotates neighbouring columns, one setting for all biases."""

    fields = {**without(LlamaLike.fields, "attention_dropout"), **one_bias("use_bias", ALL_BIASES)}
    always = {**LlamaLike.always, **INTERLEAVED}


class SeedOss(LlamaLike, name="seed_oss"):
    """Seed-OSS (ByteDance 2025): biases of queries, keys and values, and of attention's output, each by itself."""

    fields = dict(
        LlamaLike.fields, **same("attention_bias", "attention_out_bias", "mlp_bias"), dropout="residual_dropout"
    )


class Arcee(LlamaLike, name="arcee"):
    """AFM (Arcee 2025): a feed-forward network without a gate."""

    fields = Llama.fields
    always = {**Llama.always, "feed_forward": "mlp"}
    layer = without(LlamaLike.layer, "mlp.gate_proj")
    reasons = dict(DecoderFormat.reasons)


class Cwm(LlamaLike, name="cwm"):
    """Code World Model (Meta 2025): windows layer by layer."""

    fields = {**LlamaLike.fields, **same("mlp_bias"), **WINDOWS_BY_LAYER}


class Ministral(LlamaLike, name="ministral"):
    """Ministral (Mistral AI 2024): windows layer by layer."""

    fields = {**LlamaLike.fields, **WINDOWS_BY_LAYER}


class SmolLm3(LlamaLike, name="smollm3", variant="smollm3-style"):
    """SmolLM 3 (Hugging Face 2025): some layers do not rotate; windows layer by layer."""

    fields = {
        **Llama.fields,
        **WINDOWS_BY_LAYER,
        "nope_layers": Field(
            "no_rope_layers",
            lambda native: None if all(native.no_rope_layers) else [not rotates for rotates in native.no_rope_layers],
            lambda config: [int(not nope) for nope in config.nope_layers or [False] * config.num_hidden_layers],
        ),
    }
    always = Llama.always
    follows = Qwen2.follows


class Glm(LlamaLike, name="glm"):
    """GLM-4-9B (GLM team 2024)."""

    fields = {**LlamaLike.fields, **same("attention_bias"), "rope_parameters": PARTIAL_ROPE}
    always = {**LlamaLike.always, "position": "rotary-interleaved"}
    layer = {**ATTENTION, **JOINED_GATE, **PRE_NORMS}


class Glm4(Glm, name="glm4", variant="sandwich-norm"):
    """GLM-4-0414: norms on both sides of the sublayers."""

    always = {**Glm.always, "norm_placement": "sandwich"}
    layer = {**Glm.layer, **norms("post_self_attn_layernorm", "post_mlp_layernorm", "norm_branch")}


class DiffLlama(LlamaLike, name="diffllama", variant="diff-transformer"):
    """DiffLlama (Ye et al. 2024, as Llama's layers)."""

    fields = {**without(LlamaLike.fields, "attention_dropout"), **ATTENTION_BIAS}
    always = {**LlamaLike.always, "attention": "differential", "attention_dropout": 0.0}
    layer = {**LlamaLike.layer, **same(*(f"self_attn.lambda_{name}" for name in ("q1", "k1", "q2", "k2")))}


BRANCH_NORMS = norms("post_attention_layernorm", "post_feedforward_layernorm", "norm_branch")


class Olmo2(LlamaLike, name="olmo2", variant="olmo2-style"):
    """OLMo 2 (OLMo team 2024)."""

    fields = {**LlamaLike.fields, **ATTENTION_BIAS}
    always = {**LlamaLike.always, "norm_placement": "res-post", "qk_norm": "full"}
    layer = {**ATTENTION, **QK_NORMS, **GATED, **BRANCH_NORMS}


class Olmo3(Olmo2, name="olmo3", variant="olmo3-style"):
    """OLMo 3 (OLMo team 2025): as OLMo 2, with windows layer by layer, without which wavelengths may be scaled."""

    fields = {**Olmo2.fields, **WINDOWS_BY_LAYER, **ROPE_BY_LAYER}


class Cohere(DecoderFormat, name="cohere", variant="gptj-style", biased_norms=False):
    """Command R (Cohere 2024)."""

    fields = {**DECODER_SIZES, **same("layer_norm_eps", "logit_scale"), **ATTENTION_BIAS, "rope_parameters": WHOLE_ROPE}
    always = {**NO_BIASES, "position": "rotary-interleaved", "feed_forward": "gated", "parallel_residual": True}
    only = {"use_qk_norm": False}
    body = {"embed_tokens": "embed_tokens", **biasless({"norm": "norm"})}
    layer = {**ATTENTION, **GATED, **biasless({"residual.norm_in": "input_layernorm"})}


class Cohere2(Cohere, name="cohere2"):
    """Command R7B (Cohere 2024): windows layer by layer; the layers without have no positions."""

    fields = {**Cohere.fields, **WINDOWS_BY_LAYER, "nope_layers": NOPE_BY_LAYER}
    only = {}


class Exaone4(LlamaLike, name="exaone4", variant="olmo2-style"):
    """EXAONE 4 (LG AI Research 2025): where some layers have a window, the others have no positions."""

    fields = {
        **LlamaLike.fields,
        **WINDOWS_BY_LAYER,
        "sliding_window": Field("sliding_window", sliding_window),
        "nope_layers": Field(
            "layer_types",
            lambda native: None if native.sliding_window is None else whole_text(native.layer_types),
            lambda config: config.types_of_layers(),
            has=lambda config: None if config.sliding_window is None else whole_text(config.types_of_layers()),
        ),
    }
    always = {**LlamaLike.always, "norm_placement": "res-post", "qk_norm": "head"}
    layer = {**ATTENTION, **QK_NORMS, **GATED, **BRANCH_NORMS}


class Weightless(LlamaLike, untrained="weights of norms"):
    """Base of classes with norms that have no weights, which are ones in the zoo."""

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
