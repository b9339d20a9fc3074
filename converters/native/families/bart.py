"""Encoder-decoders that share BART's code: Marian, BART, MBart, Pegasus, Blenderbot, M2M100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.models import POSITIONS, ZooConfig
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import State
from ...symmetries.route import Needs
from ...transforms import LEADING_AXIS, SAME, skip_rows
from ..common import (
    COUNTED_FROM,
    COUNTS_TOKENS,
    FIXED_EPS,
    attention,
    fairseq_layer,
    fairseq_table,
    is_computed,
    table_obstacles,
    without,
)
from ..declared import Field, NativeFormat, same


class BartLike(NativeFormat):
    """Base of the family."""

    stack = "encoder-decoder"
    placement: ClassVar[str]
    sinusoidal: ClassVar[bool] = False  # Whether its position table is computed at first; what is stored counts
    offset: ClassVar[int] = 0  # Rows at the beginning of the position table that are never read
    embedding_norm: ClassVar[bool] = False
    output_bias: ClassVar[bool] = True
    tables = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
    fields: ClassVar[Mapping[str, str | Field]] = {
        **same("vocab_size", "decoder_layers", "decoder_attention_heads", "max_position_embeddings", "scale_embedding"),
        **same("dropout", "attention_dropout", "activation_dropout"),
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_dim",
        "decoder_intermediate_size": "decoder_ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
    }
    heads: ClassVar[Mapping[str, Keys]] = {
        "seq2seq-lm": {"lm_head.weight": "lm_head.weight", "lm_head.bias": ("final_logits_bias", LEADING_AXIS)},
        "feature-extraction": {},
    }
    copies: ClassVar[Mapping[str, str]] = {"model.shared.weight": "model.encoder.embed_tokens.weight"}
    reasons: ClassVar[Mapping[str, str]] = {
        "embedding_norm": "the norm on its embeddings would take away their mean and their scale",
        "lm_head_transform": "its head is a plain projection",
    }

    def keys_of_body(self, config: ZooConfig) -> Keys:
        """The keys of both stacks, `{s}` for either."""
        slot = "norm_in" if self.placement == "pre" else "norm_out"
        cross = attention("encoder_attn.{q}_proj", "encoder_attn.out_proj", "cross_attn")
        cross[f"cross_attn_residual.{slot}"] = "encoder_attn_layer_norm"
        return {
            "{s}.embed_tokens.weight": "{s}.embed_tokens.weight",
            "{s}.position.weight": ("{s}.embed_positions.weight", skip_rows(self.offset) if self.offset else SAME),
            "{s}.embedding_norm": "{s}.layernorm_embedding",
            **{f"{{s}}.layers.{{n}}.{zoo}": f"{{s}}.layers.{{n}}.{key}" for zoo, key in fairseq_layer(slot).items()},
            **{f"decoder.layers.{{n}}.{zoo}": f"decoder.layers.{{n}}.{key}" for zoo, key in cross.items()},
            "{s}.norm": "{s}.layer_norm",
        }

    def has(self, task: str) -> dict[str, Any]:
        has = super().has(task) | {
            "norm_placement": self.placement,
            "final_norm": self.placement == "pre",
            "position": "learned",
            "layer_norm_eps": FIXED_EPS,
            "embedding_norm": self.embedding_norm,
        }
        has |= {"embedding_norm_eps": FIXED_EPS} if self.embedding_norm else {}
        return has | ({"lm_head_bias": self.output_bias} if task == Task.SEQ2SEQ_LM else {})

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        shared = getattr(native, "share_encoder_decoder_embeddings", True)
        return {
            **super().read_config(native, task),
            "decoder_vocab_size": native.vocab_size if shared else native.decoder_vocab_size,
            "share_encoder_decoder_embeddings": bool(shared and native.tie_word_embeddings),
            "tie_word_embeddings": native.tie_word_embeddings,
            "lm_head_bias": self.output_bias,
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        tied = {"tie_word_embeddings": self.one_embedding(config), "forced_eos_token_id": None}
        return {**super().write_config(config, task), **tied}

    def one_embedding(self, config: ZooConfig) -> bool:
        """Whether source, target and output share one table, which is all that the class can tie."""
        return bool(config.tie_word_embeddings and config.share_encoder_decoder_embeddings)

    def needs(self, config: ZooConfig, task: str) -> Needs:
        computed = self.sinusoidal and config.sinusoidal_theta == 10000.0
        position = {"position": ("sinusoidal-halves", "learned")} if computed else {}
        return self.has(task) | position | self.vocabulary_needs(config)

    def vocabulary_needs(self, config: ZooConfig) -> dict[str, Any]:
        """One vocabulary, as part of `needs`."""
        size = max(config.vocab_size, config.decoder_vocab_size or 0)
        return {"vocab_size": size, "decoder_vocab_size": size}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        if found := super().obstacles(config, state, task):
            return found
        limit = min(config.vocab_size, config.decoder_vocab_size or config.vocab_size)
        too_large = config.pad_token_id is not None and config.pad_token_id >= limit
        return [f"pad_token_id={config.pad_token_id} is outside of a vocabulary"] if too_large else []

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Recognise sines and cosines, unless they were trained."""
        if not self.sinusoidal or native.d_model % 2:
            return state
        computed = computed_table(native.max_position_embeddings, native.d_model)
        if not all(is_computed(state[name], computed) for name in self.tables):
            return state
        settings["position"] = "sinusoidal-halves"
        return without(state, *self.tables)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        state = super().write_weights(config, state, task)
        if config.position != "learned":
            rows = computed_table(config.max_position_embeddings, config.hidden_size).to(
                state["model.encoder.embed_tokens.weight"]
            )
            state |= dict.fromkeys(self.tables, rows)
        return state


def computed_table(rows: int, width: int) -> Tensor:
    """The table that these classes start from: sines, then cosines, (rows, width)."""
    config = ZooConfig(hidden_size=width, num_attention_heads=1, position="sinusoidal-halves")
    part = POSITIONS.get("sinusoidal-halves")(config)
    return part.embed(torch.zeros(1, rows, width), torch.arange(rows)[None])[0]


class Marian(BartLike, name="marian", rank=10):
    """Marian (Junczys-Dowmunt et al. 2018): post-norm, sinusoidal; the only one with two vocabularies."""

    variant = "marian-style"
    placement = "post"
    sinusoidal = True

    def vocabulary_needs(self, config: ZooConfig) -> dict[str, Any]:
        return {}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | {
            "share_encoder_decoder_embeddings": self.one_embedding(config),
            "decoder_vocab_size": config.decoder_vocab_size,
        }

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Two embeddings have no common name."""
        state = super().write_weights(config, state, task)
        return state if self.one_embedding(config) else without(state, "model.shared.weight")


class Bart(BartLike, name="bart", rank=110):
    """BART (Lewis et al. 2020): post-norm, learned positions, a norm on the embeddings."""

    variant = "post-norm"
    placement = "post"
    offset = 2
    embedding_norm = True


class Pegasus(BartLike, name="pegasus", rank=120):
    """Pegasus (Zhang et al. 2020): pre-norm, sinusoidal."""

    variant = "pegasus-style"
    placement = "pre"
    sinusoidal = True


class Blenderbot(BartLike, name="blenderbot", rank=130):
    """Blenderbot (Roller et al. 2021): pre-norm, learned positions."""

    variant = "pegasus-style"
    placement = "pre"

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | {"encoder_no_repeat_ngram_size": 0}


class BeginsWithLastLabel(BartLike):
    """A class that makes its decoder's inputs of labels by moving the last label to the front."""

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        begin = (
            f"decoder inputs made of labels begin with the last label in {self.name}, with decoder_start_token_id in "
            "the zoo: give decoder_input_ids for the same loss"
        )
        return [begin, *super().differences(native, read, config)]


class MBart(BeginsWithLastLabel, name="mbart", rank=140):
    """MBart (Liu et al. 2020): pre-norm, learned positions, a norm on the embeddings."""

    variant = "pegasus-style"
    placement = "pre"
    offset = 2
    embedding_norm = True


class PlBart(BeginsWithLastLabel, Bart, name="plbart"):
    """PLBART (Ahmad et al. 2021): BART for code, with scaled embeddings."""


class Mvp(Bart, name="mvp"):
    """MVP (Tang et al. 2022): BART's code without prompts."""

    only = {"use_prompt": False}


class M2M100(BartLike, name="m2m_100"):
    """M2M-100 and NLLB (Fan et al. 2020): pre-norm, fairseq's sinusoidal positions, which are read as a table."""

    variant = "pegasus-style"
    placement = "pre"
    output_bias = False
    padding = COUNTED_FROM
    untrained = "tables of positions"
    reasons = {**BartLike.reasons, "lm_head_bias": "its output projection has no bias"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Padding takes no positions."""
        if native.pad_token_id is None:
            raise NoCounterpartError(self.name, [f"pad_token_id is None{COUNTED_FROM}"])
        return {**super().read_config(native, task), "position": "learned-unpadded"}

    def needs(self, config: ZooConfig, task: str) -> Needs:
        return {**super().needs(config, task), "position": ("learned-unpadded", "learned")}

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        padding = native.pad_token_id  # positions are counted from the number after it
        rows = fairseq_table(native.max_position_embeddings, native.d_model, padding + 1, padding)
        rows = rows.to(state["model.encoder.embed_tokens.weight"])
        return {**state, **{name: rows.clone() for name in self.tables}}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        return without(super().write_weights(config, state, task), *self.tables)

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        padding = config.pad_token_id or 0
        return super().obstacles(config, state, task) or table_obstacles(state, padding + 1, padding)

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        return [] if config.position == "learned-unpadded" else [COUNTS_TOKENS]
