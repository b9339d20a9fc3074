"""GPT-J and CodeGen: sublayers in parallel after one norm, interleaved rotary positions."""

from __future__ import annotations

from typing import Any

import torch

from zoo.models import ZooConfig

from ...symmetries.base import State
from ...transforms import Tensors, Transform
from ..base import native_format
from ..declared import Field, same, without
from ..decoders import ODD, PROJECTIONS, DecoderFormat, rotated_columns

THETA = 10000.0
"""The base of the rotary wavelengths, which is no setting."""


def rotated_part(native: Any) -> dict[str, Any]:
    """Read how many columns of a head are rotated."""
    share = {"partial_rotary_factor": native.rotary_dim / (native.n_embd // native.n_head)} if native.rotary_dim else {}
    return {"rope_type": "default", "rope_theta": THETA, **share}


@native_format
class GptJ(DecoderFormat):
    """GPT-J (Wang and Komatsuzaki 2021)."""

    name = "gptj"
    rank = 200
    variant = "gptj-style"
    prefix = "transformer."
    fields = {
        **same("vocab_size", "initializer_range", "tie_word_embeddings"),
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": Field("n_inner", lambda native: native.n_inner or 4 * native.n_embd),
        "hidden_act": "activation_function",
        "max_position_embeddings": "n_positions",
        "rope_parameters": Field("rotary_dim", rotated_part, rotated_columns),
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
    }
    always = {
        "position": "rotary-interleaved",
        "parallel_residual": True,
        "attention_bias": False,
        "attention_out_bias": False,
        "lm_head_bias": True,
    }
    layers = "h.{n}"
    body = {"embed_tokens": "wte", "norm": "ln_f"}
    layer = {
        "residual.norm_in": "ln_1",
        **{f"self_attn.{p}_proj": f"attn.{p}_proj" for p in "qkv"},
        "self_attn.o_proj": "attn.out_proj",
        "mlp.up_proj": "mlp.fc_in",
        "mlp.down_proj": "mlp.fc_out",
    }

    def rotary_obstacles(self, config: ZooConfig) -> list[str]:
        """No scaling, and one base. Arguments as in the base class."""
        rope = getattr(config, "rope_parameters", None)
        if rope is None:
            return []
        plain = rope.get("rope_type", "default") == "default" and rope.get("rope_theta") == THETA
        found = (
            [] if plain else [f"rope_parameters={dict(rope)}, its wavelengths begin at {THETA:g} and have no scaling"]
        )
        return [*found, f"{rotated_columns(config)} {ODD}"] if rotated_columns(config) % 2 else found


SHARDS = 4
"""Into how many groups of heads the projection of queries, values and keys is cut."""


def _cut(tensors: Tensors) -> Tensors:
    query, value, key = tensors[0].unflatten(0, (SHARDS, 3, -1)).unbind(1)
    return tuple(part.flatten(0, 1).clone() for part in (query, key, value))


def _join(tensors: Tensors) -> Tensors:
    query, key, value = (tensor.unflatten(0, (SHARDS, -1)) for tensor in tensors)
    return (torch.stack([query, value, key], dim=1).flatten(0, 2),)


@native_format
class CodeGen(GptJ):
    """CodeGen (Nijkamp et al. 2022): GPT-J with one projection for queries, values and keys."""

    name = "codegen"
    layer = {
        **without(GptJ.layer, *PROJECTIONS),
        PROJECTIONS: ("attn.qkv_proj", Transform("split", _cut, _join)),
    }

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        uneven = config.num_attention_heads % SHARDS
        found = [f"num_attention_heads={config.num_attention_heads} is no multiple of {SHARDS}"] if uneven else []
        return super().obstacles(config, state, task) + found
