"""Encoder-decoders that share BART's code: Marian, BART, MBart, Pegasus, Blenderbot, M2M100."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    FIXED_EPS,
    TABLE_POSITIONS,
    attention,
    fairseq_layer,
    is_computed,
    without,
)
from ..declared import SIZES, Field, NativeFormat, same
from .fairseq import FairseqTables

POST_NORM = {"norm_placement": "post", "final_norm": False}
PRE_NORM = {"norm_placement": "pre", "final_norm": True}
EMBEDDING_NORM = {"embedding_norm": True, "embedding_norm_eps": FIXED_EPS}


def one_embedding(config: ZooConfig) -> bool:
    """Whether source, target and output share one table, which is all that the class can tie."""
    return bool(config.tie_word_embeddings and config.share_encoder_decoder_embeddings)


class BartLike(NativeFormat):
    """Base of the family."""

    stack = "encoder-decoder"
    always: ClassVar[Mapping[str, Any]] = {"position": "learned", "layer_norm_eps": FIXED_EPS, "embedding_norm": False}
    of_task: ClassVar[Mapping[str, Mapping[str, Any]]] = {Task.SEQ2SEQ_LM: {"lm_head_bias": True}}
    sinusoidal: ClassVar[bool] = False  # Whether its position table is computed at first; what is stored counts
    offset: ClassVar[int] = 0  # Rows at the beginning of the position table that are never read
    tables = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
    fields: ClassVar[Mapping[str, str | Field]] = {
        **without(SIZES, "tie_word_embeddings"),
        **same("decoder_layers", "decoder_attention_heads", "max_position_embeddings", "scale_embedding"),
        **same("dropout", "attention_dropout", "activation_dropout"),
        "intermediate_size": "encoder_ffn_dim",
        "decoder_intermediate_size": "decoder_ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
    }
    follows: ClassVar[Mapping[str, Callable[[ZooConfig], Any]]] = {
        "tie_word_embeddings": one_embedding,
        "forced_eos_token_id": lambda config: None,
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
        slot = "norm_in" if self.always["norm_placement"] == "pre" else "norm_out"
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

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        shared = getattr(native, "share_encoder_decoder_embeddings", True)
        return {
            **super().read_config(native, task),
            "decoder_vocab_size": native.vocab_size if shared else native.decoder_vocab_size,
            "share_encoder_decoder_embeddings": bool(shared and native.tie_word_embeddings),
            "tie_word_embeddings": native.tie_word_embeddings,
            "lm_head_bias": self.of_task[Task.SEQ2SEQ_LM]["lm_head_bias"],
        }

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


class Marian(BartLike, name="marian", rank=10, variant="marian-style", sinusoidal=True):
    """Marian (Junczys-Dowmunt et al. 2018): post-norm, sinusoidal; the only one with two vocabularies."""

    always = {**BartLike.always, **POST_NORM}
    follows = {
        **BartLike.follows,
        "share_encoder_decoder_embeddings": one_embedding,
        "decoder_vocab_size": lambda config: config.decoder_vocab_size,
    }

    def vocabulary_needs(self, config: ZooConfig) -> dict[str, Any]:
        return {}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Two embeddings have no common name."""
        state = super().write_weights(config, state, task)
        return state if one_embedding(config) else without(state, "model.shared.weight")


class Bart(BartLike, name="bart", rank=110, variant="post-norm", offset=2):
    """BART (Lewis et al. 2020): post-norm, learned positions, a norm on the embeddings."""

    always = {**BartLike.always, **POST_NORM, **EMBEDDING_NORM}


class Pegasus(BartLike, name="pegasus", rank=120, variant="pegasus-style", sinusoidal=True):
    """Pegasus (Zhang et al. 2020): pre-norm, sinusoidal."""

    always = {**BartLike.always, **PRE_NORM}


class Blenderbot(BartLike, name="blenderbot", rank=130, variant="pegasus-style"):
    """Blenderbot (Roller et al. 2021): pre-norm, learned positions."""

    always = {**BartLike.always, **PRE_NORM}
    follows = {**BartLike.follows, "encoder_no_repeat_ngram_size": lambda config: 0}


class BeginsWithLastLabel(BartLike):
    """A class that makes its decoder's inputs of labels by moving the last label to the front."""

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        begin = (
            f"decoder inputs made of labels begin with the last label in {self.name}, with decoder_start_token_id in "
            "the zoo: give decoder_input_ids for the same loss"
        )
        return [begin, *super().differences(native, read, config)]


class MBart(BeginsWithLastLabel, name="mbart", rank=140, variant="pegasus-style", offset=2):
    """MBart (Liu et al. 2020): pre-norm, learned positions, a norm on the embeddings."""

    always = {**BartLike.always, **PRE_NORM, **EMBEDDING_NORM}


class PlBart(BeginsWithLastLabel, Bart, name="plbart"):
    """PLBART (Ahmad et al. 2021): BART for code, with scaled embeddings."""


class Mvp(Bart, name="mvp"):
    """MVP (Tang et al. 2022): BART's code without prompts."""

    only = {"use_prompt": False}


class M2M100(FairseqTables, BartLike, name="m2m_100", variant="pegasus-style"):
    """M2M-100 and NLLB (Fan et al. 2020): pre-norm, fairseq's sinusoidal positions, which are read as a table."""

    always = {**BartLike.always, **PRE_NORM, "position": TABLE_POSITIONS}
    of_task = {Task.SEQ2SEQ_LM: {"lm_head_bias": False}}
    padding = COUNTED_FROM
    reasons = {**BartLike.reasons, "lm_head_bias": "its output projection has no bias"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        if native.pad_token_id is None:
            raise NoCounterpartError(self.name, [f"pad_token_id is None{COUNTED_FROM}"])
        return super().read_config(native, task)

    def first_position(self, padding: int | None) -> int:
        return (padding or 0) + 1
