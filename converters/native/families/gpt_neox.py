"""GPT-NeoX: sublayers in parallel, each with a norm of its own."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State
from ...transforms import split_groups
from ..base import native_format
from ..common import share_norms
from ..declared import Keys, same, without
from ..decoders import GPT2_HEADS, PARTIAL_ROPE, PROJECTIONS, DecoderFormat
from .llama import ATTENTION_BIAS, PRE_NORMS, SAME_OUT_BIAS, SIZES

NORMS = ("input_layernorm", "post_attention_layernorm")
READERS = ("attention.query_key_value", "mlp.dense_h_to_4h")
FEED_FORWARD: Keys = {"mlp.up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h"}


class ParallelOrNot(DecoderFormat):
    """A decoder with sublayers that are parallel after one norm, or not: its `layer` leaves the norms out."""

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        """One norm where the sublayers are parallel. Arguments as in the base class."""
        return {**self.layer, **({"residual.norm_in": "input_layernorm"} if config.parallel_residual else PRE_NORMS)}


@native_format
class GptNeoX(ParallelOrNot):
    """GPT-NeoX and Pythia (Black et al. 2022)."""

    name = "gpt_neox"
    variant = "gpt-neox-style"
    prefix = "gpt_neox."
    fields = {
        **without(SIZES, "num_key_value_heads", "head_dim"),
        **ATTENTION_BIAS,
        **same("layer_norm_eps", "classifier_dropout"),
        "rope_parameters": PARTIAL_ROPE,
        "parallel_residual": "use_parallel_residual",
        "dropout": "hidden_dropout",
    }
    always = {**SAME_OUT_BIAS, "position": "rotary"}
    body = {"embed_tokens": "embed_in", "norm": "final_layer_norm"}
    layer = {
        PROJECTIONS: ("attention.query_key_value", lambda config: split_groups(config.num_attention_heads, 1)),
        "self_attn.o_proj": "attention.dense",
        **FEED_FORWARD,
    }
    heads = GPT2_HEADS

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Make one norm of two where sublayers are parallel, by what reads them. Arguments as in the base class."""
        state = super().read_weights(native, state, task)
        if not native.use_parallel_residual:
            return state
        layers = [f"gpt_neox.layers.{layer}." for layer in range(native.num_hidden_layers)]
        return share_norms(state, layers, NORMS, READERS, self.name)

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Folded norms bring biases along. Arguments as in the base class."""
        settings["attention_bias"] = any(name.endswith("query_key_value.bias") for name in state)
        return state

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Give both sublayers the norm that they share. Arguments as in the base class."""
        state = super().write_weights(config, state, task)
        if not config.parallel_residual:
            return state
        first, second = (f".{norm}." for norm in NORMS)
        return {**state, **{name.replace(first, second): value for name, value in state.items() if first in name}}
