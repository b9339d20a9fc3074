"""RoBERTa, with norms after the sublayers and before them."""

from __future__ import annotations

from typing import Any

import torch

from zoo.models import ZooConfig
from zoo.registry import Task

from ...symmetries.base import State
from ...symmetries.route import Needs
from ..base import native_format
from .bert import POST_NORMS, BertLike, bert_classes


@native_format
class Roberta(BertLike):
    """RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT, which share their code."""

    name = "roberta"
    rank = 170
    model_types = ("roberta", "xlm-roberta", "camembert")
    variant = "bert-style"
    prefix = "roberta."
    classes = bert_classes("Roberta")
    norms = POST_NORMS
    roberta_heads = True
    usual_types = 1


@native_format
class RobertaPreLayerNorm(BertLike):
    """RoBERTa with norms before the sublayers (fairseq's `normalize_before`)."""

    name = "roberta-prelayernorm"
    rank = 30
    model_types = ("roberta-prelayernorm",)
    variant = "roberta-prelayernorm-style"
    prefix = "roberta_prelayernorm."
    classes = bert_classes("RobertaPreLayerNorm")
    norms = (
        ("embeddings.LayerNorm.{p}", "model.embedding_norm.{p}"),
        ("encoder.layer.{n}.attention.LayerNorm.{p}", "model.layers.{n}.self_attn_residual.norm_in.{p}"),
        ("encoder.layer.{n}.intermediate.LayerNorm.{p}", "model.layers.{n}.mlp_residual.norm_in.{p}"),
        ("LayerNorm.{p}", "model.norm.{p}"),
    )
    roberta_heads = True
    usual_types = 1
    placement = "pre"

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """A body without a final norm fits as well: its output is read before that norm. Arguments as in the base."""
        needs = dict(super().needs(config, task))
        if task == Task.FEATURE_EXTRACTION:
            needs["final_norm"] = (True, False)
        return needs

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Without a final norm, one layer more, which does nothing. Arguments as in the base class."""
        layers = config.num_hidden_layers + (0 if config.final_norm else 1)
        return super().write_config(config, task) | {"num_hidden_layers": layers}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add the final norm that a body lacks, after a layer that does nothing."""
        state = super().write_weights(config, state, task)
        if config.final_norm:
            return state
        last, added = f"{self.prefix}encoder.layer.{config.num_hidden_layers - 1}.", {}
        for name, value in state.items():
            if name.startswith(last):
                added[name.replace(last, f"{self.prefix}encoder.layer.{config.num_hidden_layers}.")] = value * 0
        like = state[f"{self.prefix}embeddings.LayerNorm.weight"]
        norm = {"weight": torch.ones_like(like), "bias": torch.zeros_like(like)}
        return {**state, **added, **{f"{self.prefix}LayerNorm.{part}": value for part, value in norm.items()}}

    def output(self, config: ZooConfig, task: str) -> str:
        """Where the class returns what the model computes. Arguments as in the base class."""
        return super().output(config, task) if config.final_norm else "hidden_states[-2]"


@native_format
class XlmRobertaXl(BertLike):
    """XLM-RoBERTa-XL (Goyal et al. 2021): RoBERTa with norms before the sublayers, and none on the embeddings."""

    name = "xlm-roberta-xl"
    model_types = ("xlm-roberta-xl",)
    variant = "roberta-prelayernorm-style"
    prefix = "roberta."
    classes = bert_classes("XLMRobertaXL")
    norms = (
        ("encoder.layer.{n}.attention.self_attn_layer_norm.{p}", "model.layers.{n}.self_attn_residual.norm_in.{p}"),
        ("encoder.layer.{n}.LayerNorm.{p}", "model.layers.{n}.mlp_residual.norm_in.{p}"),
        ("encoder.LayerNorm.{p}", "model.norm.{p}"),
    )
    roberta_heads = True
    usual_types = 1
    placement = "pre"
    embedding_norm = False


@native_format
class Data2VecText(BertLike):
    """data2vec for text (Baevski et al. 2022): RoBERTa's code under another prefix."""

    name = "data2vec-text"
    model_types = ("data2vec-text",)
    variant = "bert-style"
    prefix = "data2vec_text."
    classes = bert_classes("Data2VecText")
    norms = POST_NORMS
    roberta_heads = True
