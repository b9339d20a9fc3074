"""BERT, RoBERTa and their kin: encoders with token types and two heads, post-norm and pre-norm; tables of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from zoo.models import ZooConfig
from zoo.registry import Task

from ...key_map import Keys
from ...symmetries.base import State
from ...transforms import SAME, Tensors, Transform, skip_rows
from ..common import COUNTED_FROM, TABLE_POSITIONS, attention, mlp, norms, without
from ..declared import EMBEDDING_NORM, SIZES, Field, NativeFormat, same
from ..decoders import partial_rotation_obstacles

CLASSIFIER_DROPOUT = Field(
    "classifier_dropout",
    lambda native: (
        native.hidden_dropout_prob if getattr(native, "classifier_dropout", None) is None else native.classifier_dropout
    ),
)

BERT_FIELDS: Mapping[str, str | Field] = {
    **SIZES,
    **same("intermediate_size", "hidden_act", "layer_norm_eps", "max_position_embeddings", "initializer_range"),
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
POST_NORM = {"norm_placement": "post", "position": "learned", "final_norm": False, **EMBEDDING_NORM}
TWO_LAYERS = {"pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
"""A sequence classifier that reads the first token by a dense layer."""


def transformed(dense: str, norm: str, output: str) -> dict[str, str]:
    """Keys of a head for masked words that transforms before it projects."""
    return {"transform.dense": dense, "transform.norm": norm, "lm_head": output}


def pooled(dense: str) -> dict[str, str]:
    return {"pooler.dense": dense, "classifier": "classifier"}


PREDICTIONS = transformed(  # BERT's head for masked words
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder"
)


def encoder_heads(masked_lm: Keys, of_sequences: Keys) -> dict[str, Keys]:
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
        Task.SEQUENCE_CLASSIFICATION: dict(
            classifier_pooling="cls", classifier_pooler_act=pooler_act, classifier_bias=True
        ),
    }


class EncoderFormat(NativeFormat, variant="bert-style", stack="encoder"):
    """An encoder that is all tables: post-norm with BERT's heads by default."""

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


ROBERTA_HEAD_ACT = "gelu"  # The fixed activation of RoBERTa's masked-lm head; the zoo's is that of the layers

COUNTED = {"position": TABLE_POSITIONS}  # Positions of RoBERTa, where padding takes none
PRE_NORM = {"norm_placement": "pre", "position": "learned", "final_norm": True, "embedding_norm": False}
POSITIONS, TYPES = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"


def fold_token_type(skipped_rows: int) -> Transform:
    """Add the only token type to a native position table, and drop the first rows, which are never read."""

    def fold(tensors: Tensors) -> Tensors:
        positions, types = tensors
        return (positions[skipped_rows:] + types[0],)

    def unfold(tensors: Tensors) -> Tensors:
        (positions,) = tensors
        unread = positions.new_zeros(skipped_rows, positions.shape[1])
        return torch.cat([unread, positions]), positions.new_zeros(1, positions.shape[1])

    return Transform("fold the token type into", fold, unfold)


class BertLike(EncoderFormat, layers="encoder.layer.{n}", pooler="pooler.dense"):
    """Base of the family."""

    fields = {**BERT_FIELDS, **same("type_vocab_size")}
    only = {"is_decoder": False, "add_cross_attention": False}
    body = {"embed_tokens": "embeddings.word_embeddings", "embedding_norm": "embeddings.LayerNorm"}
    layer = BERT_LAYER
    copies = {"cls.predictions.bias": "cls.predictions.decoder.bias"}
    roberta_heads: ClassVar[bool] = False  # Whether heads are named, and positions counted, as RoBERTa does
    # Number of token types in the class, which other libraries rely on, also in models without types
    usual_types: ClassVar[int] = 2
    reasons = {
        "lm_head_transform": "its head transforms before it projects (dense, activation, norm); a plain projection "
        "onto the vocabulary is none",
        "classifier_pooler_act": "its classifier reads a dense layer with tanh",
    }

    def skipped_rows(self, pad_token_id: int | None) -> int:
        """Rows of the position table that are never read."""
        return (pad_token_id or 0) + 1 if self.roberta_heads else 0

    def keys_of_body(self, config: ZooConfig) -> Keys:
        """The token type, if any, is a part of the positions."""
        skipped = self.skipped_rows(config.pad_token_id)
        if not config.type_vocab_size:
            return {**self.body, "position.weight": ((POSITIONS, TYPES), fold_token_type(skipped))}
        moved = (POSITIONS, skip_rows(skipped) if skipped else SAME)
        return {**self.body, "position.weight": moved, "token_types.weight": TYPES}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        return {
            **super().read_config(native, task),
            "type_vocab_size": native.type_vocab_size if native.type_vocab_size > 1 else None,
            "max_position_embeddings": native.max_position_embeddings - self.skipped_rows(native.pad_token_id),
        }

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Keep the only token type by itself where its sum with positions of 16 bits would be rounded."""
        positions, types = (state[f"{self.prefix}{name}"] for name in (POSITIONS, TYPES))
        wide = torch.promote_types(types.dtype, torch.float32)
        if len(types) == 1 and not torch.equal((positions + types).to(wide), positions.to(wide) + types.to(wide)):
            settings["type_vocab_size"] = 1
        return super().infer(native, state, settings)

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | {
            "type_vocab_size": config.type_vocab_size or self.usual_types,
            "max_position_embeddings": config.max_position_embeddings + self.skipped_rows(config.pad_token_id),
        }

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add rows of token types that are never read."""
        state = super().write_weights(config, state, task)
        if config.type_vocab_size or self.usual_types == 1:
            return state
        name = f"{self.prefix}{TYPES}"
        return {**state, name: state[name].repeat(self.usual_types, 1)}

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        by_id = "Positions are counted from the ids: a token equal to pad_token_id takes none."
        return [*([by_id] if self.roberta_heads else []), *super().notes(config, task)]


def bert_heads(prefix: str) -> dict[str, Keys]:
    """Keys of BERT's heads; the pooler is in the body."""
    return encoder_heads(PREDICTIONS, pooled(f"{prefix}pooler.dense"))


class Bert(BertLike, name="bert", rank=20):
    """BERT (Devlin et al. 2019)."""

    prefix = "bert."
    heads = bert_heads(prefix)


class MegatronBert(BertLike, name="megatron-bert", rank=40, variant="roberta-prelayernorm-style"):
    """BERT with norms before the sublayers (Shoeybi et al. 2019, Megatron-LM)."""

    prefix = "bert."
    fields = without(BertLike.fields, "classifier_dropout")
    always = PRE_NORM
    body = {"embed_tokens": "embeddings.word_embeddings", "norm": "encoder.ln"}
    layer = {**BERT_PROJECTIONS, **norms("attention.ln", "ln")}
    heads = bert_heads(prefix)


class Ernie(BertLike, name="ernie"):
    """ERNIE (Sun et al. 2020) without task types: BERT's code under another prefix."""

    prefix = "ernie."
    only = {**BertLike.only, "use_task_id": False}
    heads = bert_heads(prefix)


class RobertaLike(BertLike, usual_types=1, roberta_heads=True, padding=COUNTED_FROM):
    """Base of RoBERTa and its relatives."""

    always = {**POST_NORM, **COUNTED}
    of_task = encoder_tasks(hidden_act=ROBERTA_HEAD_ACT)
    copies = {"lm_head.bias": "lm_head.decoder.bias"}
    heads = encoder_heads(transformed("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"), TWO_LAYERS)


class Roberta(RobertaLike, name="roberta", rank=170, prefix="roberta."):
    """RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT, which share their code."""

    model_types = ("roberta", "xlm-roberta", "camembert")


class RobertaPreLayerNorm(RobertaLike, name="roberta-prelayernorm", rank=30, variant="roberta-prelayernorm-style"):
    """RoBERTa with norms before the sublayers (fairseq's `normalize_before`)."""

    prefix = "roberta_prelayernorm."
    # Without a final norm, one layer more, which does nothing.
    depth = Field("num_hidden_layers", write=lambda config: config.num_hidden_layers + (not config.final_norm))
    fields = {**RobertaLike.fields, "num_hidden_layers": depth}
    always = {**POST_NORM, **COUNTED, "norm_placement": "pre", "final_norm": True}
    body = {**BertLike.body, "norm": "LayerNorm"}
    layer = {**BERT_PROJECTIONS, **norms("attention.LayerNorm", "intermediate.LayerNorm")}

    def has(self, task: str) -> dict[str, Any]:
        """A body without a final norm fits as well: its output is read before that norm."""
        return super().has(task) | ({"final_norm": (True, False)} if task == Task.FEATURE_EXTRACTION else {})

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
        return super().output(config, task) if config.final_norm else "hidden_states[-2]"


class XlmRobertaXl(RobertaLike, name="xlm-roberta-xl", variant="roberta-prelayernorm-style", prefix="roberta."):
    """XLM-RoBERTa-XL (Goyal et al. 2021): RoBERTa with norms before the sublayers, and none on the embeddings."""

    always = {**PRE_NORM, **COUNTED}
    body = {"embed_tokens": "embeddings.word_embeddings", "norm": "encoder.LayerNorm"}
    layer = {**BERT_PROJECTIONS, **norms("attention.self_attn_layer_norm", "LayerNorm")}


class Data2VecText(RobertaLike, name="data2vec-text", prefix="data2vec_text.", usual_types=2):
    """data2vec for text (Baevski et al. 2022): RoBERTa's code under another prefix."""
