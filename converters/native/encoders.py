"""Common tables of encoders: settings and heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import ZooConfig
from zoo.registry import Task

from ..symmetries.base import State
from .common import attention, mlp, norms
from .declared import Field, Keys, NativeFormat, same
from .decoders import partial_rotation_obstacles

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
BERT_PROJECTIONS = {
    **attention("attention.self.{query}", "attention.output.dense"),
    **mlp("intermediate.dense", "output.dense"),
}
BERT_LAYER = {**BERT_PROJECTIONS, **norms("attention.output.LayerNorm", "output.LayerNorm", "norm_out")}
POST_NORM = {
    "norm_placement": "post",
    "position": "learned",
    "final_norm": False,
    "embedding_norm": True,
    "embedding_norm_eps": lambda config: config.layer_norm_eps,
}
TWO_LAYERS = {"pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
"""A sequence classifier that reads the first token by a dense layer."""


def transformed(dense: str, norm: str, output: str) -> dict[str, str]:
    """Keys of a head for masked words that transforms before it projects."""
    return {"transform.dense": dense, "transform.norm": norm, "lm_head": output}


def pooled(dense: str) -> dict[str, str]:
    """Keys of a sequence classifier that reads a dense layer."""
    return {"pooler.dense": dense, "classifier": "classifier"}


PREDICTIONS = transformed(
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder"
)
"""BERT's head for masked words."""


def encoder_heads(masked_lm: Keys, of_sequences: Keys) -> dict[str, Keys]:
    """Keys of an encoder's heads, by task."""
    return {
        Task.FEATURE_EXTRACTION.value: {},
        Task.MASKED_LM.value: masked_lm,
        Task.SEQUENCE_CLASSIFICATION.value: of_sequences,
        Task.TOKEN_CLASSIFICATION.value: {"classifier": "classifier"},
    }


def encoder_tasks(pooler_act: Any = "tanh", **masked_lm: Any) -> dict[str, Mapping[str, Any]]:
    """Settings of an encoder's heads, as [`NativeFormat.of_task`][]: BERT's, but for those that are given."""
    return {
        Task.MASKED_LM: {"lm_head_transform": True, "lm_head_bias": True, **masked_lm},
        Task.SEQUENCE_CLASSIFICATION: {
            "classifier_pooling": "cls",
            "classifier_pooler_act": pooler_act,
            "classifier_bias": True,
        },
    }


class EncoderFormat(NativeFormat):
    """An encoder that is all tables: post-norm with BERT's heads by default."""

    stack = "encoder"
    variant = "bert-style"
    always = POST_NORM
    of_task: ClassVar[Mapping[str, Mapping[str, Any]]] = encoder_tasks()
    pooler: ClassVar[str | None] = None  # A module of the body that the zoo has in classifiers alone

    def pooler_weights(self, task: str) -> dict[str, str]:
        """Weights of a pooler that a body has no use for, by their kind."""
        unused = self.pooler is not None and task == Task.FEATURE_EXTRACTION
        return {part: f"{self.prefix}{self.pooler}.{part}" for part in ("weight", "bias")} if unused else {}

    def meaningless(self, task: str) -> tuple[str, ...]:
        return (*super().meaningless(task), *self.pooler_weights(task).values())

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        rotary = partial_rotation_obstacles(self, config) if "rope_parameters" in self.fields else []
        return super().obstacles(config, state, task) + rotary

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add a body's pooler, of zeros."""
        shapes = {"weight": (config.hidden_size, config.hidden_size), "bias": (config.hidden_size,)}
        like = next(iter(state.values()))
        pooler = {name: like.new_zeros(shapes[part]) for part, name in self.pooler_weights(task).items()}
        return {**super().write_weights(config, state, task), **pooler}

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        found = ["`pooler_output` means nothing: the model has no pooler."] if self.pooler_weights(task) else []
        if task == Task.SEQUENCE_CLASSIFICATION:
            found.append("Pad on the right: the class reads the first position, also of padding.")
        return [*super().notes(config, task), *found]
