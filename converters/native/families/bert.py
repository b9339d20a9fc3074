"""BERT and its kin: encoders with token types and two heads, post-norm and pre-norm."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.registry import Task

from ...key_map import KeyMap
from ...symmetries.base import State
from ...symmetries.route import Needs
from ...transforms import SAME, Tensors, Transform, skip_rows
from ..base import NativeFormat, Pair, native_format, table
from ..common import COUNTS_TOKENS, NO_POOLER, TABLE_POSITIONS, a_stack, labels_in, labels_out, plain_needs, tokens

ROBERTA_HEAD_ACT = "gelu"
"""The activation of RoBERTa's masked-lm head, whatever that of its layers is; the zoo's is that of the layers."""


def fold_token_type(skipped_rows: int) -> Transform:
    """Make one position table of a native one, of which the first rows are never read, and the only token type."""

    def fold(tensors: Tensors) -> Tensors:
        positions, types = tensors
        return (positions[skipped_rows:] + types[0],)

    def unfold(tensors: Tensors) -> Tensors:
        (positions,) = tensors
        unread = positions.new_zeros(skipped_rows, positions.shape[1])
        return torch.cat([unread, positions]), positions.new_zeros(1, positions.shape[1])

    return Transform("fold the token type into", fold, unfold)


class BertLike(NativeFormat):
    """What the family has in common.

    Attributes:
        norms: Native keys of the norms, beside the zoo's.
        roberta_heads: Whether heads are named, and positions counted, as RoBERTa does.
        placement: Where norms stand.
        embedding_norm: Whether there is a norm on the embeddings.
        usual_types: Number of token types in the class, which other libraries rely on, also where there are none.
    """

    stack = "encoder"
    norms: ClassVar[tuple[Pair, ...]]
    roberta_heads: ClassVar[bool] = False
    placement: ClassVar[str] = "post"
    embedding_norm: ClassVar[bool] = True
    usual_types: ClassVar[int] = 2
    reasons = {
        "lm_head_transform": "its head transforms before it projects (dense, activation, norm); a plain projection "
        "onto the vocabulary is none",
        "classifier_pooler_act": "its classifier reads a dense layer with tanh",
    }

    def skipped_rows(self, pad_token_id: int | None) -> int:
        """Rows of the position table that are never read."""
        return (pad_token_id or 0) + 1 if self.roberta_heads else 0

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        embeddings, layer, to = f"{self.prefix}embeddings", f"{self.prefix}encoder.layer.{{n}}", "model.layers.{n}"
        positions, types = f"{embeddings}.position_embeddings.weight", f"{embeddings}.token_type_embeddings.weight"
        skipped = self.skipped_rows(config.pad_token_id)
        tables: tuple[Pair, ...] = (((positions, types), "model.position.weight", fold_token_type(skipped)),)
        if config.type_vocab_size:
            transform = skip_rows(skipped) if skipped else SAME
            tables = ((positions, "model.position.weight", transform), (types, "model.token_types.weight"))
        return table(
            (f"{embeddings}.word_embeddings.weight", "model.embed_tokens.weight"),
            *tables,
            *((f"{self.prefix}{pair[0]}", pair[1]) for pair in self.norms),
            (f"{layer}.attention.self.query.{{p}}", f"{to}.self_attn.q_proj.{{p}}"),
            (f"{layer}.attention.self.key.{{p}}", f"{to}.self_attn.k_proj.{{p}}"),
            (f"{layer}.attention.self.value.{{p}}", f"{to}.self_attn.v_proj.{{p}}"),
            (f"{layer}.attention.output.dense.{{p}}", f"{to}.self_attn.o_proj.{{p}}"),
            (f"{layer}.intermediate.dense.{{p}}", f"{to}.mlp.up_proj.{{p}}"),
            (f"{layer}.output.dense.{{p}}", f"{to}.mlp.down_proj.{{p}}"),
            *(self.roberta_head(task) if self.roberta_heads else self.bert_head()),
            owner=self.name,
        )

    def bert_head(self) -> tuple[Pair, ...]:
        """Keys of BERT's heads."""
        return (
            ("cls.predictions.transform.dense.{p}", "transform.dense.{p}"),
            ("cls.predictions.transform.LayerNorm.{p}", "transform.norm.{p}"),
            ("cls.predictions.decoder.weight", "lm_head.weight"),
            ("cls.predictions.decoder.bias", "lm_head.bias"),
            (f"{self.prefix}pooler.dense.{{p}}", "pooler.dense.{p}"),
            ("classifier.{p}", "classifier.{p}"),
        )

    def roberta_head(self, task: str) -> tuple[Pair, ...]:
        """Keys of RoBERTa's heads."""
        two_layers = task == Task.SEQUENCE_CLASSIFICATION
        return (
            ("lm_head.dense.{p}", "transform.dense.{p}"),
            ("lm_head.layer_norm.{p}", "transform.norm.{p}"),
            ("lm_head.decoder.weight", "lm_head.weight"),
            ("lm_head.decoder.bias", "lm_head.bias"),
            ("classifier.dense.{p}", "pooler.dense.{p}"),
            ("classifier.out_proj.{p}" if two_layers else "classifier.{p}", "classifier.{p}"),
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, is_decoder=False, add_cross_attention=False)
        if self.roberta_heads and task == Task.MASKED_LM:
            self.refuse(native, hidden_act=ROBERTA_HEAD_ACT)
        dropout = getattr(native, "classifier_dropout", None)
        return {
            "vocab_size": native.vocab_size,
            "type_vocab_size": native.type_vocab_size if native.type_vocab_size > 1 else None,
            "hidden_size": native.hidden_size,
            "num_hidden_layers": native.num_hidden_layers,
            "num_attention_heads": native.num_attention_heads,
            "intermediate_size": native.intermediate_size,
            "hidden_act": native.hidden_act,
            "layer_norm_eps": native.layer_norm_eps,
            "position": "learned-unpadded" if self.roberta_heads else "learned",
            "max_position_embeddings": native.max_position_embeddings - self.skipped_rows(native.pad_token_id),
            "dropout": native.hidden_dropout_prob,
            "attention_dropout": native.attention_probs_dropout_prob,
            "classifier_dropout": native.hidden_dropout_prob if dropout is None else dropout,
            "initializer_range": native.initializer_range,
            "tie_word_embeddings": native.tie_word_embeddings,
            "embedding_norm": self.embedding_norm,
            **tokens(native),
            **labels_in(native, task),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        classifier_dropout = {} if self.name == "megatron-bert" else {"classifier_dropout": config.classifier_dropout}
        return {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "intermediate_size": config.intermediate_size,
            "hidden_act": config.hidden_act,
            "layer_norm_eps": config.layer_norm_eps,
            "max_position_embeddings": config.max_position_embeddings + self.skipped_rows(config.pad_token_id),
            "type_vocab_size": config.type_vocab_size or self.usual_types,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "initializer_range": config.initializer_range,
            "tie_word_embeddings": config.tie_word_embeddings,
            **classifier_dropout,
            **tokens(config),
            **labels_out(config, task),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Describe what settings these classes have. Arguments as in the base class."""
        needs = plain_needs(task) | {
            "norm_placement": self.placement,
            "position": TABLE_POSITIONS if self.roberta_heads else "learned",
            "final_norm": self.placement == "pre",
            "embedding_norm": self.embedding_norm,
        }
        del needs["type_vocab_size"]
        if self.embedding_norm:
            needs["embedding_norm_eps"] = lambda config: config.layer_norm_eps
        if task == Task.MASKED_LM:
            needs |= {"lm_head_transform": True, "lm_head_bias": True}
            needs |= {"hidden_act": ROBERTA_HEAD_ACT} if self.roberta_heads else {}
        if task == Task.SEQUENCE_CLASSIFICATION:
            needs |= {"classifier_pooling": "cls", "classifier_pooler_act": "tanh", "classifier_bias": True}
        return needs

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        if config.stack != "encoder":
            return [f"it is {a_stack(config)}, this is an encoder"]
        return ["pad_token_id is None, from which positions are counted"] if self._lacks_pad(config) else []

    def _lacks_pad(self, config: ZooConfig) -> bool:
        return self.roberta_heads and config.pad_token_id is None

    def meaningless(self, task: str) -> tuple[str, ...]:
        """An output bias that is never added, and a body's pooler. Arguments as in the base class."""
        unread = ("cls.predictions.bias", "lm_head.bias")
        pooler = (f"{self.prefix}pooler.dense.weight", f"{self.prefix}pooler.dense.bias")
        return (*unread, *pooler) if task == Task.FEATURE_EXTRACTION else unread

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add what is never read: an output bias, a body's pooler, types. Arguments as in the base class."""
        if not config.type_vocab_size and self.usual_types > 1:
            name = f"{self.prefix}embeddings.token_type_embeddings.weight"
            state = {**state, name: state[name].repeat(self.usual_types, 1)}
        if task == Task.MASKED_LM:
            read = "lm_head.decoder.bias" if self.roberta_heads else "cls.predictions.decoder.bias"
            return {**state, read.replace("decoder.bias", "bias"): state[read]}
        if task == Task.FEATURE_EXTRACTION:
            table: Tensor = state[f"{self.prefix}embeddings.word_embeddings.weight"]
            width = config.hidden_size
            pooler = {"weight": table.new_zeros(width, width), "bias": table.new_zeros(width)}
            return {**state, **{f"{self.prefix}pooler.dense.{part}": zeros for part, zeros in pooler.items()}}
        return state

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        """What users of an exported model should know. Arguments as in the base class."""
        found = []
        if self.roberta_heads:
            found.append("Positions are counted from the ids: a token equal to pad_token_id takes none.")
            found += [] if config.position == "learned-unpadded" else [COUNTS_TOKENS]
        if task == Task.FEATURE_EXTRACTION:
            found.append(NO_POOLER)
        return found


def bert_classes(name: str) -> dict[str, str]:
    """Names of the classes of such a family."""
    return {
        "feature-extraction": f"{name}Model",
        "masked-lm": f"{name}ForMaskedLM",
        "sequence-classification": f"{name}ForSequenceClassification",
        "token-classification": f"{name}ForTokenClassification",
    }


POST_NORMS = (
    ("embeddings.LayerNorm.{p}", "model.embedding_norm.{p}"),
    ("encoder.layer.{n}.attention.output.LayerNorm.{p}", "model.layers.{n}.self_attn_residual.norm_out.{p}"),
    ("encoder.layer.{n}.output.LayerNorm.{p}", "model.layers.{n}.mlp_residual.norm_out.{p}"),
)


@native_format
class Bert(BertLike):
    """BERT (Devlin et al. 2019)."""

    name = "bert"
    rank = 20
    model_types = ("bert",)
    variant = "bert-style"
    prefix = "bert."
    classes = bert_classes("Bert")
    norms = POST_NORMS


@native_format
class MegatronBert(BertLike):
    """BERT with norms before the sublayers (Shoeybi et al. 2019, Megatron-LM)."""

    name = "megatron-bert"
    rank = 40
    model_types = ("megatron-bert",)
    variant = "roberta-prelayernorm-style"
    prefix = "bert."
    classes = bert_classes("MegatronBert")
    norms = (
        ("encoder.layer.{n}.attention.ln.{p}", "model.layers.{n}.self_attn_residual.norm_in.{p}"),
        ("encoder.layer.{n}.ln.{p}", "model.layers.{n}.mlp_residual.norm_in.{p}"),
        ("encoder.ln.{p}", "model.norm.{p}"),
    )
    placement = "pre"
    embedding_norm = False


@native_format
class Ernie(BertLike):
    """ERNIE (Sun et al. 2020) without task types: BERT's code under another prefix."""

    name = "ernie"
    model_types = ("ernie",)
    variant = "bert-style"
    prefix = "ernie."
    classes = bert_classes("Ernie")
    norms = POST_NORMS

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, use_task_id=False)
        return super().read_config(native, task)
