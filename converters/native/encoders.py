"""Common tables of encoders: settings and heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.registry import Task

from .declared import DeclaredFormat, Field, same

CLASSIFIER_DROPOUT = Field(
    "classifier_dropout",
    lambda native: (
        native.hidden_dropout_prob if getattr(native, "classifier_dropout", None) is None else native.classifier_dropout
    ),
)

BERT_FIELDS: Mapping[str, str | Field] = {
    **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    **same("layer_norm_eps", "max_position_embeddings", "initializer_range", "tie_word_embeddings"),
    "type_vocab_size": Field("type_vocab_size", has=lambda config: config.type_vocab_size or 2),
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": CLASSIFIER_DROPOUT,
}
BERT_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.o_proj": "attention.output.dense",
    "self_attn_residual.norm_out": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_residual.norm_out": "output.LayerNorm",
}
POST_NORM = {
    "norm_placement": "post",
    "position": "learned",
    "final_norm": False,
    "embedding_norm": True,
    "embedding_norm_eps": lambda config: config.layer_norm_eps,
}
TWO_LAYERS = {"pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
"""A sequence classifier that reads the first token by a dense layer."""


class EncoderFormat(DeclaredFormat):
    """An encoder that is all tables: post-norm with BERT's heads by default."""

    stack = "encoder"
    variant = "bert-style"
    always = POST_NORM
    pooler_act: ClassVar[Any] = "tanh"
    mlm_transform: ClassVar[bool] = True

    def has(self, task: str) -> dict[str, Any]:
        """Settings of the class. Arguments as in the base class."""
        has = super().has(task)
        if task == Task.MASKED_LM:
            has |= {"lm_head_transform": self.mlm_transform, "lm_head_bias": True}
        if task == Task.SEQUENCE_CLASSIFICATION:
            has |= {"classifier_pooling": "cls", "classifier_pooler_act": self.pooler_act, "classifier_bias": True}
        return has
