"""Encoders that differ from BERT in a line or two: DistilBERT, ELECTRA, RoFormer, ALBERT, XLM; ModernBERT's kind."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...symmetries.base import State
from ...transforms import split
from ..common import attention, mlp, norms, without
from ..declared import EMBEDDING_NORM, SIZES, Field, choice, same
from ..decoders import FIXED_ROPE, HEAD_DIM, PROJECTIONS, ROPE, ROPE_BY_LAYER, fixed_rope_obstacles
from .bart import computed_table
from .bert import (
    BERT_FIELDS,
    BERT_LAYER,
    POST_NORM,
    PREDICTIONS,
    TWO_LAYERS,
    EncoderFormat,
    encoder_heads,
    encoder_tasks,
    pooled,
    transformed,
)
from .llama import ATTENTION, GATED, NO_BIASES, Llama

EMBEDDING_SIZE = Field(  # The width of embeddings that are projected where it differs from that of the layers
    "embedding_size",
    lambda native: None if native.embedding_size == native.hidden_size else native.embedding_size,
    lambda config: config.embedding_width,
    has=lambda config: None if config.embedding_size == config.hidden_size else config.embedding_size,
)


class DistilBert(EncoderFormat, name="distilbert", prefix="distilbert.", layers="transformer.layer.{n}"):
    """DistilBERT (Sanh et al. 2019): no token types, a classifier with ReLU."""

    fields = {
        **SIZES,
        **same("max_position_embeddings", "initializer_range", "dropout", "attention_dropout"),
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
    layer = {
        **attention("attention.{q}_lin", "attention.out_lin"),
        **mlp("ffn.lin1", "ffn.lin2"),
        **norms("sa_layer_norm", "output_layer_norm", "norm_out"),
    }
    heads = encoder_heads(
        transformed("vocab_transform", "vocab_layer_norm", "vocab_projector"), pooled("pre_classifier")
    )
    of_task = encoder_tasks("relu")

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Classifiers of tokens have the rate of the layers."""
        rate = {"classifier_dropout": native.dropout} if task == Task.TOKEN_CLASSIFICATION else {}
        return {**super().read_config(native, task), **rate}


class Electra(EncoderFormat, name="electra", prefix="electra.", layers="encoder.layer.{n}"):
    """ELECTRA (Clark et al. 2020), with projected embeddings unless they are as wide as its layers."""

    fields = {**BERT_FIELDS, "embedding_size": EMBEDDING_SIZE}
    body = {
        **DistilBert.body,
        "token_types.weight": "embeddings.token_type_embeddings.weight",
        "embedding_projection": "embeddings_project",
    }
    layer = BERT_LAYER
    heads = encoder_heads(
        transformed("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"), TWO_LAYERS
    )
    of_task = encoder_tasks("gelu", hidden_act="gelu")
    only = {"is_decoder": False}


class RoFormer(EncoderFormat, name="roformer", variant="roformer-style", prefix="roformer."):
    """RoFormer (Su et al. 2021): rotary positions."""

    fields = Electra.fields
    always = {**POST_NORM, "position": "rotary-interleaved"}
    only = {"rotary_value": False, "is_decoder": False}
    copies = {"cls.predictions.bias": "cls.predictions.decoder.bias"}
    unread = ("roformer.encoder.embed_positions.weight",)
    body = without(Electra.body, "position.weight")
    layers = "encoder.layer.{n}"
    layer = BERT_LAYER
    heads = encoder_heads(PREDICTIONS, TWO_LAYERS)
    of_task = encoder_tasks(lambda config: config.hidden_act)

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        return {**super().read_config(native, task), "rope_parameters": {**FIXED_ROPE}}

    def compute_in_float32(self, model: Any) -> None:
        for module in model.modules():
            if hasattr(module, "create_weight"):  # the table of sines
                module.float()
                module.weight.data = module.create_weight()

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        return super().obstacles(config, state, task) + fixed_rope_obstacles(config)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        rows = computed_table(config.max_position_embeddings, config.head_dim)
        rows = rows.to(state["roformer.embeddings.word_embeddings.weight"])
        return {**super().write_weights(config, state, task), self.unread[0]: rows}


class Albert(EncoderFormat, name="albert", variant="albert-style", prefix="albert.", pooler="pooler"):
    """ALBERT (Lan et al. 2020) with one layer that is applied again and again."""

    fields = {
        **BERT_FIELDS,
        "embedding_size": Field("embedding_size", has=lambda config: config.embedding_size or config.hidden_size),
        "classifier_dropout": "classifier_dropout_prob",
    }
    always = {**POST_NORM, "share_layers": True}
    only = {"num_hidden_groups": 1, "inner_group_num": 1}
    body = {**Electra.body, "embedding_projection": "encoder.embedding_hidden_mapping_in"}
    layers = "encoder.albert_layer_groups.{n}.albert_layers.0"
    layer = {
        **attention("attention.{query}", "attention.dense"),
        **mlp("ffn", "ffn_output"),
        **norms("attention.LayerNorm", "full_layer_layer_norm", "norm_out"),
    }
    heads = encoder_heads(
        transformed("predictions.dense", "predictions.LayerNorm", "predictions.decoder"), pooled("albert.pooler")
    )
    reasons = {
        "embedding_size": "its embeddings are projected, here they are not",
        "share_layers": "all of its layers are one",
    }
    copies = {"predictions.bias": "predictions.decoder.bias"}


SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": None}
"""How its sequence classifier reads a text."""

XLM_LAYER = {
    **attention("attentions.{n}.{q}_lin", "attentions.{n}.out_lin"),
    **mlp("ffns.{n}.lin1", "ffns.{n}.lin2"),
    **norms("layer_norm1.{n}", "layer_norm2.{n}", "norm_out"),
}


class Xlm(EncoderFormat, name="xlm", rank=150, prefix="transformer.", padding=""):
    """XLM (Lample and Conneau 2019) for one language."""

    fields = {
        **SIZES,
        **same("layer_norm_eps", "max_position_embeddings", "dropout", "attention_dropout"),
        "hidden_act": choice("gelu_activation", "hidden_act", {"gelu": True, "relu": False}),
    }
    always = {**POST_NORM, "intermediate_size": lambda config: 4 * config.hidden_size}
    only = {"n_langs": 1, "causal": False, "asm": False, "is_encoder": True, "sinusoidal_embeddings": False}
    follows = {"summary_first_dropout": lambda config: config.classifier_dropout}
    body = {
        "embed_tokens": "embeddings",
        "position.weight": "position_embeddings.weight",
        "embedding_norm": "layer_norm_emb",
        **{f"layers.{{n}}.{zoo}": native for zoo, native in XLM_LAYER.items()},
    }
    heads = encoder_heads({"lm_head": "pred_layer.proj"}, {"classifier": "sequence_summary.summary"})
    of_task = encoder_tasks(None, lm_head_transform=False)
    reasons = {"intermediate_size": "its feed-forward network is exactly four times as wide as the model"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        settings = {**super().read_config(native, task), "lm_head_transform": False, "classifier_pooler_act": None}
        if task != Task.SEQUENCE_CLASSIFICATION:
            return settings
        self.refuse(native, **SUMMARY)
        return {**settings, "classifier_dropout": native.summary_first_dropout}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        plain = {**SUMMARY, "summary_proj_to_labels": True, "use_lang_emb": False}
        return super().write_config(config, task) | plain


class ModernBert(EncoderFormat, name="modernbert", variant="modernbert-style"):
    """ModernBERT (Warner et al. 2024), for masked words or features: its classifiers normalise what they pool."""

    fields = {
        **SIZES,
        **same("intermediate_size", "max_position_embeddings", "initializer_range", "attention_dropout"),
        **ROPE_BY_LAYER,
        "hidden_act": Field("hidden_activation", has="gelu"),
        "layer_norm_eps": "norm_eps",
        "dropout": "embedding_dropout",
        "activation_dropout": "mlp_dropout",
        "sliding_window": Field(
            "local_attention",
            lambda native: native.sliding_window,
            lambda config: 2 * (config.sliding_window or config.max_position_embeddings),
        ),
        "layer_types": Field("layer_types", write=lambda config: config.types_of_layers()),
    }
    always = {
        "norm": "layernorm-no-bias",
        "norm_placement": "pre",
        "residual": "no-first-norm",
        "final_norm": True,
        **EMBEDDING_NORM,
        "feed_forward": "gated",
        **NO_BIASES,
    }
    only = {
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
        "decoder_bias": True,
        **dict.fromkeys(("hidden_activation", "classifier_activation"), "gelu"),
    }
    body = {"embed_tokens": "embeddings.tok_embeddings", "embedding_norm": "embeddings.norm", "norm": "final_norm"}
    layer = {
        PROJECTIONS: ("attn.Wqkv", split(3)),
        "self_attn.o_proj": "attn.Wo",
        **norms("attn_norm", "mlp_norm"),
        ("mlp.gate_proj", "mlp.up_proj"): ("mlp.Wi", split(2)),
        "mlp.down_proj": "mlp.Wo",
    }
    heads = {"feature-extraction": {}, "masked-lm": transformed("head.dense", "head.norm", "decoder")}
    reasons = {"norm": "its norms have no biases", "residual": "it has no norm before its first attention"}


class NomicBert(EncoderFormat, name="nomic_bert", variant="roformer-style", prefix="nomic_bert."):
    """Nomic Embed (Nussbaum et al. 2024). Its head for masked words has a bias where its other layers have none."""

    fields = {**BERT_FIELDS, "head_dim": HEAD_DIM, "rope_parameters": ROPE}
    always = {**POST_NORM, **NO_BIASES, "position": "rotary", "feed_forward": "gated"}
    body = {
        "embed_tokens": "embeddings.word_embeddings",
        "token_types.weight": "embeddings.token_type_embeddings.weight",
        "embedding_norm": "embeddings.LayerNorm",
    }
    layer = {**ATTENTION, **GATED, **norms("post_attention_layernorm", "post_mlp_layernorm", "norm_out")}
    heads = without(encoder_heads({}, pooled("nomic_bert.pooler.dense")), Task.MASKED_LM)


class EuroBert(EncoderFormat, name="eurobert", variant="roberta-prelayernorm-style"):
    """EuroBERT (Boizard et al. 2025)."""

    fields = without(Llama.fields, "classifier_dropout")
    always = {**Llama.always, "norm_placement": "pre", "final_norm": True}
    body = Llama.body
    layer = Llama.layer
    heads = without(encoder_heads({"lm_head": "lm_head"}, {}), Task.SEQUENCE_CLASSIFICATION)
    of_task = encoder_tasks(lm_head_transform=False, lm_head_bias=lambda config: config.mlp_bias)
