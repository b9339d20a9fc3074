"""T5."""

from __future__ import annotations

from typing import Any

import torch

from zoo.models import ZooConfig
from zoo.registry import Task

from ...key_map import Keys
from ...symmetries.base import State
from ..common import without
from ..declared import SIZES, Field, NativeFormat, same
from .llama import NO_BIASES

GATED, PLAIN = {"up_proj": "wi_1", "gate_proj": "wi_0", "down_proj": "wo"}, {"up_proj": "wi", "down_proj": "wo"}


def activation(config: ZooConfig) -> str:
    """The activation, and whether it gates."""
    if config.feed_forward != "gated":
        return str(config.hidden_act)
    return f"gated-{'gelu' if config.hidden_act == 'gelu_new' else config.hidden_act}"


class T5(NativeFormat, name="t5", rank=100, variant="t5-style", prefix=""):
    """T5 (Raffel et al. 2020), version 1.0 with a tied and scaled output, and 1.1 with gated feed-forwards."""

    model_types = ("t5", "mt5")
    stack = "encoder-decoder"
    fields = {
        **without(SIZES, "tie_word_embeddings"),
        **same("relative_attention_num_buckets", "relative_attention_max_distance"),
        "decoder_layers": "num_decoder_layers",
        "head_dim": "d_kv",
        "intermediate_size": "d_ff",
        "feed_forward": Field(
            "feed_forward_proj",
            lambda native: "gated" if native.is_gated_act else "mlp",
            activation,
            has=("mlp", "gated"),
        ),
        "hidden_act": Field("feed_forward_proj", lambda native: native.dense_act_fn, activation),
        "layer_norm_eps": "layer_norm_epsilon",
        **dict.fromkeys(
            ("dropout", "attention_dropout", "activation_dropout"),
            Field("dropout_rate", write=lambda config: config.dropout),
        ),
    }
    always = {
        "norm": "rmsnorm",
        "norm_placement": "pre",
        "final_norm": True,
        "position": "t5",
        "attention_scale": "none",
        **NO_BIASES,
        "decoder_attention_heads": lambda config: config.num_attention_heads,
        "decoder_intermediate_size": lambda config: config.intermediate_size,
        "share_encoder_decoder_embeddings": True,
    }
    # T5's setting of scaled outputs; it does not decide what is tied.
    follows = {"tie_word_embeddings": lambda config: config.logit_scale != 1.0}
    heads = {"seq2seq-lm": {"lm_head.weight": "lm_head.weight"}, "feature-extraction": {}}
    of_task = {Task.SEQ2SEQ_LM: {"lm_head_bias": False, "logit_scale": lambda config: (1.0, config.hidden_size**-0.5)}}
    copies = {"shared.weight": "encoder.embed_tokens.weight"}
    reasons = {
        "lm_head_bias": "its output projection has no bias",
        "position": "its positions are bucketed biases on the scores",
        "norm": "it has RMSNorm",
        "share_encoder_decoder_embeddings": "source and target have one embedding",
    }

    def keys_of_body(self, config: ZooConfig) -> Keys:
        """The keys of both stacks, `{s}` for either."""
        of_both, of_each = "{s}.layers.{n}", {"encoder": 1, "decoder": 2}
        relative = "{s}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        keys = {"{s}.embed_tokens": "{s}.embed_tokens", "{s}.position": relative, "{s}.norm": "{s}.final_layer_norm"}
        keys |= {f"{of_both}.self_attn.{p}_proj": f"{{s}}.block.{{n}}.layer.0.SelfAttention.{p}" for p in "qkvo"}
        keys[f"{of_both}.self_attn_residual.norm_in"] = "{s}.block.{n}.layer.0.layer_norm"
        cross, zoo = "decoder.block.{n}.layer.1", "decoder.layers.{n}.cross_attn"
        keys |= {f"{zoo}.{p}_proj": f"{cross}.EncDecAttention.{p}" for p in "qkvo"}
        keys[f"{zoo}_residual.norm_in"] = f"{cross}.layer_norm"
        for stack, place in of_each.items():
            native, zoo = f"{stack}.block.{{n}}.layer.{place}", f"{stack}.layers.{{n}}.mlp"
            keys[f"{zoo}_residual.norm_in"] = f"{native}.layer_norm"
            names = GATED if config.feed_forward == "gated" else PLAIN
            keys |= {f"{zoo}.{ours}": f"{native}.DenseReluDense.{theirs}" for ours, theirs in names.items()}
        return {f"{ours}.weight": f"{theirs.removesuffix('.weight')}.weight" for ours, theirs in keys.items()}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        scaled = task == Task.SEQ2SEQ_LM and getattr(native, "scale_decoder_outputs", False)  # mT5's never are
        scale = {"logit_scale": native.d_model**-0.5 if scaled else 1.0}
        return {**super().read_config(native, task), **scale}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        if config.feed_forward == "gated" and config.hidden_act == "gelu":
            found.append("hidden_act='gelu', what it calls gated-gelu is 'gelu_new'")
        if task == Task.SEQ2SEQ_LM and not found and config.decoder_layers > config.num_hidden_layers:
            # transformers 5.23 gives its cache as many layers as the encoder has.
            found.append(f"decoder_layers={config.decoder_layers}, generating fails beyond its encoder's depth")
        return found

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Whether output and embedding are tied, which no setting holds."""
        if "lm_head.weight" in state:
            tied = torch.equal(state["lm_head.weight"], state["decoder.embed_tokens.weight"])
            settings["tie_word_embeddings"] = tied
        return state
