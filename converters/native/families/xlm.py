"""XLM: a post-norm encoder with plain projections as heads."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...symmetries.base import State
from ..declared import choice, native_format, same
from ..encoders import POST_NORM, EncoderFormat, encoder_heads, encoder_tasks

SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": None}
"""How its sequence classifier reads a text."""

LAYER = {
    **{f"self_attn.{p}_proj": f"attentions.{{n}}.{p}_lin" for p in "qkv"},
    "self_attn.o_proj": "attentions.{n}.out_lin",
    "self_attn_residual.norm_out": "layer_norm1.{n}",
    "mlp.up_proj": "ffns.{n}.lin1",
    "mlp.down_proj": "ffns.{n}.lin2",
    "mlp_residual.norm_out": "layer_norm2.{n}",
}


@native_format
class Xlm(EncoderFormat):
    """XLM (Lample and Conneau 2019) for one language."""

    name = "xlm"
    rank = 150
    prefix = "transformer."
    fields = {
        **same("vocab_size", "layer_norm_eps", "max_position_embeddings", "dropout", "attention_dropout"),
        **same("tie_word_embeddings"),
        "hidden_size": "emb_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_act": choice("gelu_activation", "hidden_act", {"gelu": True, "relu": False}),
    }
    always = {**POST_NORM, "intermediate_size": lambda config: 4 * config.hidden_size}
    only = {"n_langs": 1, "causal": False, "asm": False, "is_encoder": True, "sinusoidal_embeddings": False}
    follows = {"summary_first_dropout": lambda config: config.classifier_dropout}
    body = {
        "embed_tokens": "embeddings",
        "position.weight": "position_embeddings.weight",
        "embedding_norm": "layer_norm_emb",
        **{f"layers.{{n}}.{zoo}": native for zoo, native in LAYER.items()},
    }
    heads = encoder_heads({"lm_head": "pred_layer.proj"}, {"classifier": "sequence_summary.summary"})
    of_task = encoder_tasks(None, lm_head_transform=False)
    reasons = {"intermediate_size": "its feed-forward network is exactly four times as wide as the model"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        if task == Task.SEQUENCE_CLASSIFICATION:
            self.refuse(native, **SUMMARY)
        return {**super().read_config(native, task), "lm_head_transform": False, "classifier_pooler_act": None}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        plain = {**SUMMARY, "summary_proj_to_labels": True, "use_lang_emb": False}
        return super().write_config(config, task) | plain

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        return found if config.pad_token_id is not None else [*found, "pad_token_id is None"]
