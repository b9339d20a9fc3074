"""Llama and its kin: RMSNorm, rotary positions, a gated feed-forward network, grouped queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import ZooConfig
from zoo.registry import Task

from ..key_map import KeyMap
from ..symmetries.base import State
from ..symmetries.route import Needs
from .base import NativeFormat, native_format, table
from .common import decoder_obstacles, drop, labels_in, labels_out, plain_needs, tokens


def llama_classes(name: str) -> dict[str, str]:
    """Names of the classes of such a family.

    Args:
        name: What they begin with.

    Returns:
        The class of every task.
    """
    return {
        "causal-lm": f"{name}ForCausalLM",
        "sequence-classification": f"{name}ForSequenceClassification",
        "token-classification": f"{name}ForTokenClassification",
        "feature-extraction": f"{name}Model",
    }


class LlamaLike(NativeFormat):
    """What the family has in common.

    Attributes:
        qk_norm: Whether, and how, queries and keys are normalised.
    """

    stack = "decoder"
    prefix = "model."
    variant = "llama-style"
    qk_norm: ClassVar[str | None] = None
    reasons: ClassVar[Mapping[str, str]] = {
        "lm_head_bias": "its output projection has no bias",
        "feed_forward": "its feed-forward network is gated",
        "norm": "it has RMSNorm",
    }

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        layer = "model.layers.{n}"
        attention = [(f"{layer}.self_attn.{p}_proj.{{p}}",) * 2 for p in "qkvo"]
        feed_forward = [(f"{layer}.mlp.{p}_proj.{{p}}",) * 2 for p in ("gate", "up", "down")]
        return table(
            ("model.embed_tokens.weight", "model.embed_tokens.weight"),
            *attention,
            *((f"{layer}.self_attn.{p}_norm.weight",) * 2 for p in "qk"),
            *feed_forward,
            (f"{layer}.input_layernorm.weight", f"{layer}.self_attn_residual.norm_in.weight"),
            (f"{layer}.post_attention_layernorm.weight", f"{layer}.mlp_residual.norm_in.weight"),
            ("model.norm.weight", "model.norm.weight"),
            ("lm_head.weight", "lm_head.weight"),
            ("score.{p}", "classifier.{p}"),
            owner=self.name,
        )

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        rope = dict(native.rope_parameters)
        if rope.get("rope_type", "default") == "default" or rope.get("partial_rotary_factor") == 1.0:
            rope.pop("partial_rotary_factor", None)  # the class rotates heads as a whole, whatever it says
        dropout = getattr(native, "classifier_dropout", None)
        return {
            "vocab_size": native.vocab_size,
            "hidden_size": native.hidden_size,
            "num_hidden_layers": native.num_hidden_layers,
            "num_attention_heads": native.num_attention_heads,
            "num_key_value_heads": native.num_key_value_heads,
            "head_dim": getattr(native, "head_dim", None) or native.hidden_size // native.num_attention_heads,
            "intermediate_size": native.intermediate_size,
            "hidden_act": native.hidden_act,
            "layer_norm_eps": native.rms_norm_eps,
            "max_position_embeddings": native.max_position_embeddings,
            "rope_parameters": rope,
            "qk_norm": self.qk_norm,
            "attention_dropout": native.attention_dropout,
            "classifier_dropout": 0.1 if dropout is None else dropout,
            "initializer_range": native.initializer_range,
            "tie_word_embeddings": native.tie_word_embeddings,
            **self.read_biases(native),
            **self.read_windows(native),
            **tokens(native),
            "classifier_bias": task != Task.SEQUENCE_CLASSIFICATION,
            **labels_in(native, task),
        }

    def read_biases(self, native: Any) -> dict[str, Any]:
        """Where linear layers have biases.

        Args:
            native: The native configuration.

        Returns:
            Fields of [`ZooConfig`][].
        """
        has_bias = getattr(native, "attention_bias", False)
        return {
            "attention_bias": has_bias,
            "attention_out_bias": has_bias,
            "mlp_bias": getattr(native, "mlp_bias", False),
        }

    def read_windows(self, native: Any) -> dict[str, Any]:
        """Which layers have a sliding window.

        Args:
            native: The native configuration.

        Returns:
            Fields of [`ZooConfig`][].
        """
        return {}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        return {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "intermediate_size": config.intermediate_size,
            "hidden_act": config.hidden_act,
            "rms_norm_eps": config.layer_norm_eps,
            "max_position_embeddings": config.max_position_embeddings,
            "rope_parameters": dict(config.rope_parameters),
            "attention_dropout": config.attention_dropout,
            "classifier_dropout": config.classifier_dropout,
            "initializer_range": config.initializer_range,
            "tie_word_embeddings": config.tie_word_embeddings,
            **self.write_biases(config),
            **self.write_windows(config),
            **tokens(config),
            **labels_out(config, task),
        }

    def write_biases(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_biases`.

        Args:
            config: The zoo's settings.

        Returns:
            Fields of the native configuration.
        """
        return {"attention_bias": config.attention_bias, "mlp_bias": config.mlp_bias}

    def write_windows(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_windows`, as `write_biases`."""
        return {}

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Say what settings these classes have. Arguments as in the base class."""
        needs = plain_needs(config, task) | {
            "norm": "rmsnorm",
            "norm_placement": "pre",
            "final_norm": True,
            "position": "rotary",
            "feed_forward": "gated",
            "qk_norm": self.qk_norm,
            **self.biases_it_has(),
        }
        del needs["head_dim"], needs["num_key_value_heads"]
        if task == Task.CAUSAL_LM:
            needs["lm_head_bias"] = False
        if task == Task.SEQUENCE_CLASSIFICATION:
            needs |= {"classifier_pooling": "last", "classifier_pooler_act": None}
        return needs

    def biases_it_has(self) -> dict[str, Any]:
        """Which biases the class can have, as part of `needs`."""
        return {
            "attention_bias": lambda config: bool(config.attention_bias or config.attention_out_bias),
            "attention_out_bias": lambda config: config.attention_bias,
            "mlp_bias": (False, True),
        }

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        found = decoder_obstacles(config, state, task)
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            found.append("a part of each head is rotated, it rotates heads as a whole")
        return found

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Leave the sequence classifier's bias out. Arguments as in the base class."""
        return drop(state, "score.bias") if task == Task.SEQUENCE_CLASSIFICATION else state


@native_format
class Llama(LlamaLike):
    """Llama (Touvron et al. 2023)."""

    name = "llama"
    model_types = ("llama",)
    classes = llama_classes("Llama")


class NoFeedForwardBias(LlamaLike):
    """Members of the family whose feed-forward networks have no biases."""

    def biases_it_has(self) -> dict[str, Any]:
        """Which biases the class can have, as part of `needs`."""
        return super().biases_it_has() | {"mlp_bias": False}

    def write_biases(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_biases`. Arguments as in the base class."""
        return {"attention_bias": config.attention_bias}


@native_format
class Mistral(NoFeedForwardBias):
    """Mistral (Jiang et al. 2023): no biases, and one sliding window for all layers."""

    name = "mistral"
    model_types = ("mistral",)
    classes = llama_classes("Mistral")

    def biases_it_has(self) -> dict[str, Any]:
        """Which biases the class can have, as part of `needs`."""
        return {"attention_bias": False, "attention_out_bias": False, "mlp_bias": False}

    def write_biases(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_biases`. Arguments as in the base class."""
        return {}

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Any window, the same in all layers. Arguments as in the base class."""
        return {field: value for field, value in super().needs(config, task).items() if field != "sliding_window"}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        windows = {config.window_of_layer(layer) for layer in range(config.num_hidden_layers)}
        mixed = ["its layers have different windows, here all have the same"] if len(windows) > 1 else []
        return super().obstacles(config, state, task) + mixed

    def read_windows(self, native: Any) -> dict[str, Any]:
        """One window in all layers, whatever `layer_types` says. Arguments as in the base class."""
        return {} if native.sliding_window is None else {"sliding_window": native.sliding_window}

    def write_windows(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_windows`. Arguments as in the base class."""
        return {"sliding_window": config.sliding_window}
