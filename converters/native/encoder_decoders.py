"""What native encoder-decoders that share BART's code have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.models import POSITIONS, ZooConfig
from zoo.registry import Task

from ..key_map import KeyMap
from ..symmetries.base import State
from ..symmetries.route import Needs
from ..transforms import LEADING_AXIS, SAME, skip_rows
from .base import NativeFormat, table
from .common import a_stack, drop, plain_needs, tokens
from .fairseq import fairseq_layer

EPS = 1e-5
"""The epsilon of their norms, which is no setting."""

SAME_TABLE = 2e-4
"""How far a stored table of sines may be from ours: exponents rounded in another order, over a thousand positions."""


class BartLike(NativeFormat):
    """What the family has in common.

    Attributes:
        placement: Where norms stand.
        sinusoidal: Whether its position table is computed at first; what is stored counts.
        offset: Rows at the beginning of the position table that are never read.
        embedding_norm: Whether there is a norm on the embeddings.
        output_bias: Whether the output projection has a bias.
        tables: Names of the position tables.
    """

    stack = "encoder-decoder"
    prefix = "model."
    placement: ClassVar[str]
    sinusoidal: ClassVar[bool] = False
    offset: ClassVar[int] = 0
    embedding_norm: ClassVar[bool] = False
    output_bias: ClassVar[bool] = True
    tables = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
    reasons: ClassVar[Mapping[str, str]] = {
        "embedding_norm": "the norm on its embeddings would take away their mean and their scale",
        "lm_head_transform": "its head is a plain projection",
    }

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        native, layer = "model.{s}.layers.{n}", "model.{s}.layers.{n}"
        cross, to_cross = "model.decoder.layers.{n}.encoder_attn", "model.decoder.layers.{n}.cross_attn"
        slot = "norm_in" if self.placement == "pre" else "norm_out"
        return table(
            ("model.{s}.embed_tokens.weight",) * 2,
            (
                "model.{s}.embed_positions.weight",
                "model.{s}.position.weight",
                skip_rows(self.offset) if self.offset else SAME,
            ),
            ("model.{s}.layernorm_embedding.{p}", "model.{s}.embedding_norm.{p}"),
            *fairseq_layer(native, layer, slot),
            *((f"{cross}.{p}_proj.{{p}}", f"{to_cross}.{p}_proj.{{p}}") for p in "qkv"),
            (f"{cross}.out_proj.{{p}}", f"{to_cross}.o_proj.{{p}}"),
            (f"{cross}_layer_norm.{{p}}", f"{to_cross}_residual.{slot}.{{p}}"),
            ("model.{s}.layer_norm.{p}", "model.{s}.norm.{p}"),
            ("lm_head.weight", "lm_head.weight"),
            ("final_logits_bias", "lm_head.bias", LEADING_AXIS),
            owner=self.name,
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        shared = getattr(native, "share_encoder_decoder_embeddings", True)
        target_size = native.vocab_size if shared else native.decoder_vocab_size
        return {
            "vocab_size": native.vocab_size,
            "decoder_vocab_size": target_size,
            "hidden_size": native.d_model,
            "num_hidden_layers": native.encoder_layers,
            "decoder_layers": native.decoder_layers,
            "num_attention_heads": native.encoder_attention_heads,
            "decoder_attention_heads": native.decoder_attention_heads,
            "intermediate_size": native.encoder_ffn_dim,
            "decoder_intermediate_size": native.decoder_ffn_dim,
            "hidden_act": native.activation_function,
            "layer_norm_eps": EPS,
            "norm_placement": self.placement,
            "final_norm": self.placement == "pre",
            "embedding_norm": self.embedding_norm,
            "position": "learned",
            "max_position_embeddings": native.max_position_embeddings,
            "scale_embedding": native.scale_embedding,
            "lm_head_bias": self.output_bias,
            "dropout": native.dropout,
            "attention_dropout": native.attention_dropout,
            "activation_dropout": native.activation_dropout,
            "initializer_range": native.init_std,
            "share_encoder_decoder_embeddings": bool(shared and native.tie_word_embeddings),
            "tie_word_embeddings": native.tie_word_embeddings,
            **tokens(native, decoder_start=True),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        return {
            "vocab_size": config.vocab_size,
            "d_model": config.hidden_size,
            "encoder_layers": config.num_hidden_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_attention_heads": config.num_attention_heads,
            "decoder_attention_heads": config.decoder_attention_heads,
            "encoder_ffn_dim": config.intermediate_size,
            "decoder_ffn_dim": config.decoder_intermediate_size,
            "activation_function": config.hidden_act,
            "max_position_embeddings": config.max_position_embeddings,
            "scale_embedding": config.scale_embedding,
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.activation_dropout,
            "init_std": config.initializer_range,
            "tie_word_embeddings": self.one_embedding(config),
            "forced_eos_token_id": None,
            **tokens(config, decoder_start=True),
        }

    def one_embedding(self, config: ZooConfig) -> bool:
        """Whether source, target and output share one table, which is all that the class can tie."""
        return bool(config.tie_word_embeddings and config.share_encoder_decoder_embeddings)

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Describe what settings these classes have. Arguments as in the base class."""
        computed = self.sinusoidal and config.sinusoidal_theta == 10000.0
        needs = plain_needs(task) | {
            "norm_placement": self.placement,
            "final_norm": self.placement == "pre",
            "position": ("sinusoidal-halves", "learned") if computed else "learned",
            "layer_norm_eps": EPS,
            "embedding_norm": self.embedding_norm,
        }
        if self.embedding_norm:
            needs["embedding_norm_eps"] = EPS
        del needs["scale_embedding"]
        if task == Task.SEQ2SEQ_LM:
            needs["lm_head_bias"] = self.output_bias
        return needs | self.vocabulary_needs(config)

    def vocabulary_needs(self, config: ZooConfig) -> dict[str, Any]:
        """One vocabulary, as part of `needs`."""
        size = max(config.vocab_size, config.decoder_vocab_size or 0)
        return {"vocab_size": size, "decoder_vocab_size": size}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        if config.stack != "encoder-decoder":
            return [f"it is {a_stack(config)}, this is an encoder-decoder"]
        limit = min(config.vocab_size, config.decoder_vocab_size or config.vocab_size)
        too_large = config.pad_token_id is not None and config.pad_token_id >= limit
        return [f"pad_token_id={config.pad_token_id} is outside of a vocabulary"] if too_large else []

    def meaningless(self, task: str) -> tuple[str, ...]:
        """The embedding's further name. Arguments as in the base class."""
        return ("model.shared.weight",)

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Recognise sines and cosines, unless they were trained. Arguments as in the base class."""
        if not self.sinusoidal or native.d_model % 2:
            return state
        computed = computed_table(native.max_position_embeddings, native.d_model)
        if any((state[name].float() - computed).abs().max() > SAME_TABLE for name in self.tables):
            return state
        settings["position"] = "sinusoidal-halves"
        return drop(state, *self.tables)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add the embedding's further name, and a computed position table. Arguments as in the base class."""
        embedding = state["model.encoder.embed_tokens.weight"]
        state = {**state, "model.shared.weight": embedding}
        if config.position != "learned":
            rows = computed_table(config.max_position_embeddings, config.hidden_size).to(embedding.dtype)
            state |= dict.fromkeys(self.tables, rows)
        return state


def computed_table(rows: int, width: int) -> Tensor:
    """The table that these classes begin with: sines, then cosines.

    Returns:
        *Shape:* (rows, width)
    """
    config = ZooConfig(hidden_size=width, num_attention_heads=1, position="sinusoidal-halves")
    part = POSITIONS.get("sinusoidal-halves")(config)
    return part.embed(torch.zeros(1, rows, width), torch.arange(rows)[None])[0]


def bart_classes(name: str, head: str = "ForConditionalGeneration") -> dict[str, str]:
    """Names of the classes of such a family."""
    return {"seq2seq-lm": f"{name}{head}", "feature-extraction": f"{name}Model"}
