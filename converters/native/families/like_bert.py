"""Encoders that differ from BERT in a line or two: DistilBERT, ELECTRA, RoFormer."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...symmetries.base import State
from ..base import native_format
from ..declared import same, without
from ..encoder_decoders import computed_table
from ..encoders import BERT_FIELDS, BERT_LAYER, POST_NORM, TWO_LAYERS, EncoderFormat


@native_format
class DistilBert(EncoderFormat):
    """DistilBERT (Sanh et al. 2019): no token types, a classifier with ReLU."""

    name = "distilbert"
    prefix = "distilbert."
    fields = {
        **same("vocab_size", "max_position_embeddings", "initializer_range", "tie_word_embeddings", "dropout"),
        **same("attention_dropout"),
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "classifier_dropout": "seq_classif_dropout",
    }
    always = {**POST_NORM, "layer_norm_eps": 1e-12}
    body = {
        "embed_tokens": "embeddings.word_embeddings",
        "position.weight": "embeddings.position_embeddings.weight",
        "embedding_norm": "embeddings.LayerNorm",
    }
    layers = "transformer.layer.{n}"
    layer = {
        **{f"self_attn.{p}_proj": f"attention.{p}_lin" for p in "qkv"},
        "self_attn.o_proj": "attention.out_lin",
        "self_attn_residual.norm_out": "sa_layer_norm",
        "mlp.up_proj": "ffn.lin1",
        "mlp.down_proj": "ffn.lin2",
        "mlp_residual.norm_out": "output_layer_norm",
    }
    heads = {
        "feature-extraction": {},
        "masked-lm": {
            "transform.dense": "vocab_transform",
            "transform.norm": "vocab_layer_norm",
            "lm_head": "vocab_projector",
        },
        "sequence-classification": {"pooler.dense": "pre_classifier", "classifier": "classifier"},
        "token-classification": {"classifier": "classifier"},
    }
    pooler_act = "relu"


@native_format
class Electra(EncoderFormat):
    """ELECTRA (Clark et al. 2020) with embeddings as wide as its layers."""

    name = "electra"
    prefix = "electra."
    fields = BERT_FIELDS
    follows = {"embedding_size": lambda config: config.hidden_size}
    body = {
        **DistilBert.body,
        "token_types.weight": "embeddings.token_type_embeddings.weight",
    }
    layers = "encoder.layer.{n}"
    layer = BERT_LAYER
    heads = {
        "feature-extraction": {},
        "masked-lm": {
            "transform.dense": "generator_predictions.dense",
            "transform.norm": "generator_predictions.LayerNorm",
            "lm_head": "generator_lm_head",
        },
        "sequence-classification": TWO_LAYERS,
        "token-classification": {"classifier": "classifier"},
    }
    pooler_act = "gelu"

    def has(self, task: str) -> dict[str, Any]:
        """What settings the class has; its masked-lm head is always with gelu. Arguments as in the base class."""
        return super().has(task) | ({"hidden_act": "gelu"} if task == Task.MASKED_LM else {})

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, embedding_size=native.hidden_size, is_decoder=False)
        if task == Task.MASKED_LM:
            self.refuse(native, hidden_act="gelu")
        return super().read_config(native, task)


@native_format
class RoFormer(EncoderFormat):
    """RoFormer (Su et al. 2021) with embeddings as wide as its layers: rotary positions."""

    name = "roformer"
    variant = "roformer-style"
    prefix = "roformer."
    fields = BERT_FIELDS
    always = {**POST_NORM, "position": "rotary-interleaved"}
    only = {"rotary_value": False, "is_decoder": False}
    follows = Electra.follows
    unread = ("roformer.encoder.embed_positions.weight", "cls.predictions.bias")
    body = without(Electra.body, "position.weight")
    layers = "encoder.layer.{n}"
    layer = BERT_LAYER
    heads = {
        **Electra.heads,
        "masked-lm": {
            "transform.dense": "cls.predictions.transform.dense",
            "transform.norm": "cls.predictions.transform.LayerNorm",
            "lm_head": "cls.predictions.decoder",
        },
    }

    def has(self, task: str) -> dict[str, Any]:
        """What settings the class has; its classifier's activation is the layers'. Arguments as in the base class."""
        own = {"classifier_pooler_act": lambda config: config.hidden_act}
        return super().has(task) | (own if task == Task.SEQUENCE_CLASSIFICATION else {})

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, embedding_size=native.hidden_size)
        rope = {"rope_type": "default", "rope_theta": 10000.0}
        return {**super().read_config(native, task), "rope_parameters": rope}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add what is stored twice or computed. Arguments as in the base class."""
        table, bias = self.unread
        rows = computed_table(config.max_position_embeddings, config.head_dim)
        state = {**state, table: rows.to(state["roformer.embeddings.word_embeddings.weight"])}
        return {**state, bias: state["cls.predictions.decoder.bias"]} if task == Task.MASKED_LM else state
