"""GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import ZooConfig
from zoo.registry import Task

from ..key_map import KeyMap
from ..symmetries.base import State
from ..symmetries.route import Needs
from ..transforms import TRANSPOSE, split
from .base import NativeFormat, native_format, table
from .common import decoder_obstacles, labels_in, labels_out, plain_needs, tokens, without_classifier_bias

BODY = "transformer."


@native_format
class Gpt2(NativeFormat):
    """GPT-2 (Radford et al. 2019), whose linear layers are stored transposed and whose three projections are one."""

    name = "gpt2"
    model_types = ("gpt2",)
    variant = "gpt2-style"
    stack = "decoder"
    prefix = BODY
    classes: ClassVar[Mapping[str, str]] = {
        "causal-lm": "GPT2LMHeadModel",
        "sequence-classification": "GPT2ForSequenceClassification",
        "token-classification": "GPT2ForTokenClassification",
        "feature-extraction": "GPT2Model",
    }
    reasons: ClassVar[Mapping[str, str]] = {"lm_head_bias": "its output projection has no bias"}

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        native, layer = f"{BODY}h.{{n}}", "model.layers.{n}"
        projections = [tuple(f"{layer}.self_attn.{p}_proj.{kind}" for p in "qkv") for kind in ("weight", "bias")]
        head = "score" if task == Task.SEQUENCE_CLASSIFICATION else "classifier"
        return table(
            (f"{BODY}wte.weight", "model.embed_tokens.weight"),
            (f"{BODY}wpe.weight", "model.position.weight"),
            (f"{native}.ln_1.{{p}}", f"{layer}.self_attn_residual.norm_in.{{p}}"),
            (f"{native}.attn.c_attn.weight", projections[0], split(3, then=TRANSPOSE)),
            (f"{native}.attn.c_attn.bias", projections[1], split(3)),
            (f"{native}.attn.c_proj.weight", f"{layer}.self_attn.o_proj.weight", TRANSPOSE),
            (f"{native}.attn.c_proj.bias", f"{layer}.self_attn.o_proj.bias"),
            (f"{native}.ln_2.{{p}}", f"{layer}.mlp_residual.norm_in.{{p}}"),
            (f"{native}.mlp.c_fc.weight", f"{layer}.mlp.up_proj.weight", TRANSPOSE),
            (f"{native}.mlp.c_fc.bias", f"{layer}.mlp.up_proj.bias"),
            (f"{native}.mlp.c_proj.weight", f"{layer}.mlp.down_proj.weight", TRANSPOSE),
            (f"{native}.mlp.c_proj.bias", f"{layer}.mlp.down_proj.bias"),
            (f"{BODY}ln_f.{{p}}", "model.norm.{p}"),
            ("lm_head.weight", "lm_head.weight"),
            (f"{head}.{{p}}", "classifier.{p}"),
            owner=self.name,
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        self.refuse(native, add_cross_attention=False, scale_attn_by_inverse_layer_idx=False)
        dropout = getattr(native, "classifier_dropout", None)
        return {
            "vocab_size": native.vocab_size,
            "hidden_size": native.n_embd,
            "num_hidden_layers": native.n_layer,
            "num_attention_heads": native.n_head,
            "intermediate_size": native.n_inner or 4 * native.n_embd,
            "hidden_act": native.activation_function,
            "layer_norm_eps": native.layer_norm_epsilon,
            "max_position_embeddings": native.n_positions,
            "attention_scale": "head-dim" if native.scale_attn_weights else "none",
            "dropout": native.resid_pdrop,
            "attention_dropout": native.attn_pdrop,
            "classifier_dropout": 0.1 if dropout is None else dropout,
            "initializer_range": native.initializer_range,
            "tie_word_embeddings": native.tie_word_embeddings,
            **tokens(native),
            "classifier_bias": task != Task.SEQUENCE_CLASSIFICATION,
            **labels_in(native, task),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        return {
            "vocab_size": config.vocab_size,
            "n_embd": config.hidden_size,
            "n_layer": config.num_hidden_layers,
            "n_head": config.num_attention_heads,
            "n_inner": config.intermediate_size,
            "activation_function": config.hidden_act,
            "layer_norm_epsilon": config.layer_norm_eps,
            "n_positions": config.max_position_embeddings,
            "scale_attn_weights": config.attention_scale != "none",
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "classifier_dropout": config.classifier_dropout,
            "initializer_range": config.initializer_range,
            "tie_word_embeddings": config.tie_word_embeddings,
            **tokens(config),
            **labels_out(config, task),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Say what settings these classes have. Arguments as in the base class."""
        needs = plain_needs(config, task) | {
            "norm_placement": "pre",
            "position": "learned",
            "final_norm": True,
            "attention_scale": ("head-dim", "none"),
        }
        if task == Task.CAUSAL_LM:
            needs["lm_head_bias"] = False
        if task == Task.SEQUENCE_CLASSIFICATION:
            needs |= {"classifier_pooling": "last", "classifier_pooler_act": None}
        return needs

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        return decoder_obstacles(config, state, task)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Leave the sequence classifier's bias out, or in the last norm's. Arguments as in the base class."""
        return without_classifier_bias(state, f"{BODY}ln_f.bias")

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        """Say where a classifier's bias is. Arguments as in the base class."""
        moved = "If the classifier had a bias, the last norm's holds it: the class's own has none."
        return [moved] if task == Task.SEQUENCE_CLASSIFICATION else []
