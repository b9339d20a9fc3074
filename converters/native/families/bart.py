"""BART's code and fairseq's: Marian, BART, MBart, Pegasus, Blenderbot, M2M100; XGLM, BioGPT and OPT."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.models import POSITIONS, ZooConfig
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import Needs, State
from ...transforms import LEADING_AXIS, SAME, skip_rows
from ..common import COUNTED_FROM, TABLE_POSITIONS, attention, mlp, norms, without, without_classifier_bias
from ..declared import ALL_BIASES, SIZES, Field, NativeFormat, choice, one_bias, same
from ..decoders import GPT2_HEADS, DecoderFormat

FIXED_EPS = 1e-5  # The epsilon of norms in BART's and OPT's relatives, which is no setting
OFFSET = 2  # Rows of position tables before the first token's, which padding once had
SAME_TABLE = 2e-4  # How far a table may be from what is computed, which machines and exponents round differently


def is_computed(stored: Tensor, computed: Tensor) -> bool:
    """Whether a stored table of positions, (rows, width), is what is computed, but for rounding."""
    return bool((stored.float() - computed.to(stored.device)).abs().max() < SAME_TABLE)


def fairseq_layer(slot: str) -> dict[str, str]:
    """The keys of self-attention and of the feed-forward network in a layer, with their norms before or after them."""
    projections = {**attention("self_attn.{q}_proj", "self_attn.out_proj"), **mlp("fc1", "fc2")}
    return {**projections, **norms("self_attn_layer_norm", "final_layer_norm", slot)}


def fairseq_table(rows: int, width: int, first: int, padding: int | None) -> Tensor:
    """Sines, then cosines, of wavelengths from 2 pi to 20000 pi, (rows, width), with a row of zeros for padding."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    phases = torch.arange(first, first + rows).float()[:, None] * frequencies
    table = torch.cat([phases.sin(), phases.cos()], dim=1)
    if padding is not None and first <= padding < first + rows:
        table[padding - first] = 0.0
    return torch.cat([table, table.new_zeros(rows, width % 2)], dim=1)


class FairseqTables(NativeFormat, untrained="tables of positions"):
    """A class that computes sines and cosines for positions, which are read as a table."""

    tables: ClassVar[tuple[str, ...]]  # Names of the tables

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


POST_NORM = {"norm_placement": "post", "final_norm": False}
PRE_NORM = {"norm_placement": "pre", "final_norm": True}
FIXED_EMBEDDING_NORM = {"embedding_norm": True, "embedding_norm_eps": FIXED_EPS}


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
            rows = computed_table(config.max_position_embeddings, config.hidden_size)
            state |= dict.fromkeys(self.tables, rows.to(state["model.encoder.embed_tokens.weight"]))
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

    always = {**BartLike.always, **POST_NORM, **FIXED_EMBEDDING_NORM}


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

    always = {**BartLike.always, **PRE_NORM, **FIXED_EMBEDDING_NORM}


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
    layer = fairseq_layer("norm_in")
    heads = {**GPT2_HEADS, "causal-lm": {"lm_head": "output_projection"}}


class Xglm(FairseqTables, DecoderFormat, name="xglm", variant="gpt2-style", computes_in_double=False):
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
    body = {"embed_tokens": "embed_tokens", "position.weight": "embed_positions.weight", "norm": "layer_norm"}
    layer = fairseq_layer("norm_in")


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
