"""XGLM, BioGPT and OPT: fairseq's decoders."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import State
from ...transforms import skip_rows
from ..common import (
    FIXED_EPS,
    OFFSET,
    TABLE_POSITIONS,
    fairseq_layer,
    is_computed,
    without,
    without_classifier_bias,
)
from ..declared import ALL_BIASES, SIZES, Field, NativeFormat, choice, one_bias, same
from ..decoders import GPT2_HEADS, DecoderFormat


def fairseq_table(rows: int, width: int, first: int, padding: int | None) -> Tensor:
    """Sines, then cosines, of wavelengths from 2 pi to 20000 pi, (rows, width), with a row of zeros for padding."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    phases = torch.arange(first, first + rows).float()[:, None] * frequencies
    table = torch.cat([phases.sin(), phases.cos()], dim=1)
    if padding is not None and first <= padding < first + rows:
        table[padding - first] = 0.0
    return torch.cat([table, table.new_zeros(rows, width % 2)], dim=1)


class FairseqTables(NativeFormat):
    """A class that computes sines and cosines for positions, which are read as a table."""

    tables: ClassVar[tuple[str, ...]]  # Names of the tables
    untrained = "tables of positions"

    def first_position(self, padding: int | None) -> int:
        """The number of the first token's position."""
        return OFFSET

    def read_weights(self, native: Any, state: State, task: str) -> State:
        state, padding = super().read_weights(native, state, task), native.pad_token_id
        first, like = self.first_position(padding), next(iter(state.values()))
        rows = fairseq_table(native.max_position_embeddings, native.hidden_size, first, padding).to(like)
        return {**state, **{name: rows.clone() for name in self.tables}}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        return without(super().write_weights(config, state, task), *self.tables)

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        if found := super().obstacles(config, state, task):
            return found
        padding = config.pad_token_id
        first = self.first_position(padding)
        tables = [value for name, value in state.items() if name.endswith("position.weight")]
        same = tables and all(is_computed(one, fairseq_table(len(one), one.shape[1], first, padding)) for one in tables)
        return [] if same else ["its positions are not the sines and cosines that this class computes"]


LAYER = fairseq_layer("norm_in")


class BioGpt(DecoderFormat, name="biogpt", variant="gpt2-style", prefix="biogpt."):
    """BioGPT (Luo et al. 2022)."""

    fields = {
        **SIZES,
        **same("intermediate_size", "hidden_act", "max_position_embeddings", "initializer_range", "activation_dropout"),
        **same("scale_embedding"),
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    }
    always = {"layer_norm_eps": FIXED_EPS, "position": "learned"}
    body = {
        "embed_tokens": "embed_tokens",
        "position.weight": ("embed_positions.weight", skip_rows(OFFSET)),
        "norm": "layer_norm",
    }
    layer = LAYER
    heads = {**GPT2_HEADS, "causal-lm": {"lm_head": "output_projection"}}


class Xglm(FairseqTables, DecoderFormat, name="xglm", variant="gpt2-style"):
    """XGLM (Lin et al. 2021): fairseq's sinusoidal positions, which are read as a table."""

    fields = {
        **SIZES,
        **same("max_position_embeddings", "dropout", "attention_dropout", "activation_dropout", "scale_embedding"),
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
    }
    always = {"layer_norm_eps": FIXED_EPS, "position": "learned"}
    only = {"add_cross_attention": False}
    tables = ("model.embed_positions.weight",)
    computes_in_double = False
    body = {"embed_tokens": "embed_tokens", "position.weight": "embed_positions.weight", "norm": "layer_norm"}
    layer = LAYER


class Opt(DecoderFormat, name="opt", rank=160, variant="gpt2-style", layers="decoder.layers.{n}"):
    """OPT (Zhang et al. 2022); its body with `is_causal=false` is an encoder."""

    fields = {
        **SIZES,
        **same("max_position_embeddings", "dropout", "attention_dropout"),
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
        "norm_placement": choice("do_layer_norm_before", "norm_placement", {"pre": True, "post": False}),
        "final_norm": Field(
            "_remove_final_layer_norm",
            lambda native: native.do_layer_norm_before and not native._remove_final_layer_norm,
            lambda config: config.norm_placement == "pre" and not config.final_norm,
            has=lambda config: (True, False) if config.norm_placement == "pre" else False,
        ),
        **one_bias("enable_bias", ALL_BIASES),
    }
    always = {"position": TABLE_POSITIONS, "layer_norm_eps": FIXED_EPS}
    only = {"layer_norm_elementwise_affine": True}
    follows = {"word_embed_proj_dim": lambda config: config.hidden_size}
    body = {
        "embed_tokens": "decoder.embed_tokens",
        "position.weight": ("decoder.embed_positions.weight", skip_rows(OFFSET)),
        "norm": "decoder.final_layer_norm",
    }

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        return fairseq_layer("norm_in" if config.norm_placement == "pre" else "norm_out")

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        if native.word_embed_proj_dim != native.hidden_size:
            lacks = f"embeddings of word_embed_proj_dim={native.word_embed_proj_dim} are projected to hidden_size="
            raise NoCounterpartError(self.name, [f"{lacks}{native.hidden_size} (as in opt-350m), which no part does"])
        encoder = {} if getattr(native, "is_causal", True) else {"is_decoder": False}
        return {**super().read_config(native, task), **encoder}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | ({} if config.is_decoder else {"is_causal": False})

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        if config.stack == "encoder" and task == Task.FEATURE_EXTRACTION:
            return []
        return super().obstacles(config, state, task)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        last = "" if config.final_norm else f"layers.{config.num_hidden_layers - 1}."
        return without_classifier_bias(state, f"model.decoder.{last}final_layer_norm.bias")
