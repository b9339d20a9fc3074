"""XLM: a post-norm encoder whose heads are plain projections."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...key_map import KeyMap
from ...symmetries.base import State
from ...symmetries.route import Needs
from ..base import NativeFormat, native_format, table
from ..common import a_stack, labels_in, labels_out, plain_needs, tokens

ACTIVATIONS = {True: "gelu", False: "relu"}
"""By `gelu_activation`."""


@native_format
class Xlm(NativeFormat):
    """XLM (Lample and Conneau 2019) for one language."""

    name = "xlm"
    rank = 150
    model_types = ("xlm",)
    variant = "bert-style"
    stack = "encoder"
    prefix = "transformer."
    classes = {
        "feature-extraction": "XLMModel",
        "masked-lm": "XLMWithLMHeadModel",
        "sequence-classification": "XLMForSequenceClassification",
        "token-classification": "XLMForTokenClassification",
    }
    reasons = {"intermediate_size": "its feed-forward network is exactly four times as wide as the model"}

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        layer = "model.layers.{n}"
        sequence = task == Task.SEQUENCE_CLASSIFICATION
        return table(
            ("transformer.embeddings.weight", "model.embed_tokens.weight"),
            ("transformer.position_embeddings.weight", "model.position.weight"),
            ("transformer.layer_norm_emb.{p}", "model.embedding_norm.{p}"),
            ("transformer.attentions.{n}.q_lin.{p}", f"{layer}.self_attn.q_proj.{{p}}"),
            ("transformer.attentions.{n}.k_lin.{p}", f"{layer}.self_attn.k_proj.{{p}}"),
            ("transformer.attentions.{n}.v_lin.{p}", f"{layer}.self_attn.v_proj.{{p}}"),
            ("transformer.attentions.{n}.out_lin.{p}", f"{layer}.self_attn.o_proj.{{p}}"),
            ("transformer.layer_norm1.{n}.{p}", f"{layer}.self_attn_residual.norm_out.{{p}}"),
            ("transformer.ffns.{n}.lin1.{p}", f"{layer}.mlp.up_proj.{{p}}"),
            ("transformer.ffns.{n}.lin2.{p}", f"{layer}.mlp.down_proj.{{p}}"),
            ("transformer.layer_norm2.{n}.{p}", f"{layer}.mlp_residual.norm_out.{{p}}"),
            ("pred_layer.proj.{p}", "lm_head.{p}"),
            ("sequence_summary.summary.{p}" if sequence else "classifier.{p}", "classifier.{p}"),
            owner=self.name,
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, n_langs=1, causal=False, asm=False, is_encoder=True, sinusoidal_embeddings=False)
        if task == Task.SEQUENCE_CLASSIFICATION:
            self.refuse(native, summary_type="first", summary_use_proj=True, summary_activation=None)
        return {
            "vocab_size": native.vocab_size,
            "hidden_size": native.emb_dim,
            "num_hidden_layers": native.n_layers,
            "num_attention_heads": native.n_heads,
            "intermediate_size": 4 * native.emb_dim,
            "hidden_act": ACTIVATIONS[native.gelu_activation],
            "layer_norm_eps": native.layer_norm_eps,
            "max_position_embeddings": native.max_position_embeddings,
            "dropout": native.dropout,
            "attention_dropout": native.attention_dropout,
            "tie_word_embeddings": native.tie_word_embeddings,
            "lm_head_transform": False,
            "classifier_pooler_act": None,
            **tokens(native),
            **labels_in(native, task),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        return {
            "vocab_size": config.vocab_size,
            "emb_dim": config.hidden_size,
            "n_layers": config.num_hidden_layers,
            "n_heads": config.num_attention_heads,
            "gelu_activation": config.hidden_act == "gelu",
            "layer_norm_eps": config.layer_norm_eps,
            "max_position_embeddings": config.max_position_embeddings,
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "summary_first_dropout": config.classifier_dropout,
            "tie_word_embeddings": config.tie_word_embeddings,
            "n_langs": 1,
            "use_lang_emb": False,
            "causal": False,
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": None,
            "summary_proj_to_labels": True,
            **tokens(config),
            **labels_out(config, task),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Describe what settings these classes have. Arguments as in the base class."""
        needs = plain_needs(task) | {
            "norm_placement": "post",
            "position": "learned",
            "final_norm": False,
            "embedding_norm": True,
            "embedding_norm_eps": lambda config: config.layer_norm_eps,
            "hidden_act": tuple(ACTIVATIONS.values()),
            "intermediate_size": 4 * config.hidden_size,
        }
        if task == Task.MASKED_LM:
            needs["lm_head_bias"] = True
        if task == Task.SEQUENCE_CLASSIFICATION:
            needs |= {"classifier_pooling": "cls", "classifier_pooler_act": None, "classifier_bias": True}
        return needs

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        found = [] if config.stack == "encoder" else [f"it is {a_stack(config)}, this is an encoder"]
        return found if config.pad_token_id is not None else [*found, "pad_token_id is None"]
