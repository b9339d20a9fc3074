"""OPT: decoders with learned positions, norms before or after the sublayers."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import KeyMap
from ...symmetries.base import State
from ...symmetries.route import Needs
from ...transforms import skip_rows
from ..base import NativeFormat, native_format, table
from ..common import (
    COUNTS_TOKENS,
    TABLE_POSITIONS,
    decoder_obstacles,
    labels_in,
    labels_out,
    plain_needs,
    tokens,
    without_classifier_bias,
)
from ..fairseq import fairseq_layer

OFFSET = 2
"""Rows at the beginning of the position table that are never read."""

EPS = 1e-5
"""The epsilon of its norms, which is no setting."""


@native_format
class Opt(NativeFormat):
    """OPT (Zhang et al. 2022); its body with `is_causal=false` is an encoder."""

    name = "opt"
    rank = 160
    model_types = ("opt",)
    variant = "gpt2-style"
    stack = "decoder"
    prefix = "model."
    classes = {
        "causal-lm": "OPTForCausalLM",
        "sequence-classification": "OPTForSequenceClassification",
        "feature-extraction": "OPTModel",
    }
    reasons = {"lm_head_bias": "its output projection has no bias"}

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        native, layer = "model.decoder.layers.{n}", "model.layers.{n}"
        slot = "norm_in" if config.norm_placement == "pre" else "norm_out"
        return table(
            ("model.decoder.embed_tokens.weight", "model.embed_tokens.weight"),
            ("model.decoder.embed_positions.weight", "model.position.weight", skip_rows(OFFSET)),
            *fairseq_layer(native, layer, slot),
            ("model.decoder.final_layer_norm.{p}", "model.norm.{p}"),
            ("lm_head.weight", "lm_head.weight"),
            ("score.{p}", "classifier.{p}"),
            owner=self.name,
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, layer_norm_elementwise_affine=True)
        if native.word_embed_proj_dim != native.hidden_size:
            lacks = f"embeddings of word_embed_proj_dim={native.word_embed_proj_dim} are projected to hidden_size="
            raise NoCounterpartError(self.name, [f"{lacks}{native.hidden_size} (as in opt-350m), which no part does"])
        pre = native.do_layer_norm_before
        return {
            "vocab_size": native.vocab_size,
            "hidden_size": native.hidden_size,
            "num_hidden_layers": native.num_hidden_layers,
            "num_attention_heads": native.num_attention_heads,
            "intermediate_size": native.ffn_dim,
            "hidden_act": native.activation_function,
            "layer_norm_eps": EPS,
            "position": "learned-unpadded",
            "max_position_embeddings": native.max_position_embeddings,
            "norm_placement": "pre" if pre else "post",
            "final_norm": pre and not native._remove_final_layer_norm,
            "attention_bias": native.enable_bias,
            "attention_out_bias": native.enable_bias,
            "mlp_bias": native.enable_bias,
            "dropout": native.dropout,
            "attention_dropout": native.attention_dropout,
            "initializer_range": native.init_std,
            "tie_word_embeddings": native.tie_word_embeddings,
            **({} if getattr(native, "is_causal", True) else {"is_decoder": False}),
            **tokens(native),
            "classifier_bias": task != Task.SEQUENCE_CLASSIFICATION,
            **labels_in(native, task),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        pre = config.norm_placement == "pre"
        return {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "word_embed_proj_dim": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "ffn_dim": config.intermediate_size,
            "activation_function": config.hidden_act,
            "max_position_embeddings": config.max_position_embeddings,
            "do_layer_norm_before": pre,
            "_remove_final_layer_norm": pre and not config.final_norm,
            "enable_bias": config.attention_bias,
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "init_std": config.initializer_range,
            "tie_word_embeddings": config.tie_word_embeddings,
            **({} if config.is_decoder else {"is_causal": False}),
            **tokens(config),
            **labels_out(config, task),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Describe what settings these classes have. Arguments as in the base class."""
        any_bias = config.attention_bias or config.attention_out_bias or config.mlp_bias
        needs = plain_needs(task) | {
            "norm_placement": ("pre", "post"),
            "position": TABLE_POSITIONS,
            "final_norm": lambda config: (True, False) if config.norm_placement == "pre" else False,
            "layer_norm_eps": EPS,
            **dict.fromkeys(("attention_bias", "attention_out_bias", "mlp_bias"), bool(any_bias)),
        }
        if task == Task.CAUSAL_LM:
            needs["lm_head_bias"] = False
        if task == Task.SEQUENCE_CLASSIFICATION:
            needs |= {"classifier_pooling": "last", "classifier_pooler_act": None}
        return needs

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        if config.stack == "encoder" and task == Task.FEATURE_EXTRACTION:
            return []
        return decoder_obstacles(config, state, task)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Leave the sequence classifier's bias out, or in the last norm's. Arguments as in the base class."""
        last = "" if config.final_norm else f"layers.{config.num_hidden_layers - 1}."
        return without_classifier_bias(state, f"model.decoder.{last}final_layer_norm.bias")

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        """Describe where a classifier's bias is, and how positions are counted. Arguments as in the base class."""
        found = ["If the classifier had a bias, the last norm's holds it: the class's own has none."]
        found = found if task == Task.SEQUENCE_CLASSIFICATION else []
        return found if config.position == "learned-unpadded" else [*found, COUNTS_TOKENS]
