"""T5."""

from __future__ import annotations

from typing import Any

import torch

from zoo.models import ZooConfig
from zoo.registry import Task

from ...key_map import KeyMap
from ...symmetries.base import State
from ...symmetries.route import Needs
from ..base import NativeFormat, native_format, table
from ..common import a_stack, plain_needs, tokens


@native_format
class T5(NativeFormat):
    """T5 (Raffel et al. 2020), version 1.0 with a tied and scaled output, and 1.1 with gated feed-forwards."""

    name = "t5"
    rank = 100
    model_types = ("t5", "mt5")
    variant = "t5-style"
    stack = "encoder-decoder"
    prefix = ""
    classes = {"seq2seq-lm": "T5ForConditionalGeneration", "feature-extraction": "T5Model"}
    reasons = {
        "lm_head_bias": "its output projection has no bias",
        "position": "its positions are bucketed biases on the scores",
        "norm": "it has RMSNorm",
        "share_encoder_decoder_embeddings": "source and target have one embedding",
    }

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side. Arguments as in the base class."""
        native, layer = "{s}.block.{n}.layer", "model.{s}.layers.{n}"
        encoder, decoder = "encoder.block.{n}.layer", "decoder.block.{n}.layer"
        to_encoder, to_decoder = "model.encoder.layers.{n}", "model.decoder.layers.{n}"
        relative = "{s}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        up, gate = ("wi_1", "wi_0") if config.feed_forward == "gated" else ("wi", "")
        feed_forward = {up: "up_proj", gate: "gate_proj", "wo": "down_proj"}
        feed_forward.pop("", None)
        rows: list[Any] = [
            ("{s}.embed_tokens.weight", "model.{s}.embed_tokens.weight"),
            (relative, "model.{s}.position.weight"),
            (f"{native}.0.layer_norm.weight", f"{layer}.self_attn_residual.norm_in.weight"),
            ("decoder.block.{n}.layer.1.layer_norm.weight", f"{to_decoder}.cross_attn_residual.norm_in.weight"),
            (f"{encoder}.1.layer_norm.weight", f"{to_encoder}.mlp_residual.norm_in.weight"),
            (f"{decoder}.2.layer_norm.weight", f"{to_decoder}.mlp_residual.norm_in.weight"),
            ("{s}.final_layer_norm.weight", "model.{s}.norm.weight"),
            ("lm_head.weight", "lm_head.weight"),
        ]
        for p in "qkvo":
            rows.append((f"{native}.0.SelfAttention.{p}.weight", f"{layer}.self_attn.{p}_proj.weight"))
            rows.append((f"{decoder}.1.EncDecAttention.{p}.weight", f"{to_decoder}.cross_attn.{p}_proj.weight"))
        for theirs, ours in feed_forward.items():
            rows.append((f"{encoder}.1.DenseReluDense.{theirs}.weight", f"{to_encoder}.mlp.{ours}.weight"))
            rows.append((f"{decoder}.2.DenseReluDense.{theirs}.weight", f"{to_decoder}.mlp.{ours}.weight"))
        return table(*rows, owner=self.name)

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        scaled = task == Task.SEQ2SEQ_LM and getattr(native, "scale_decoder_outputs", False)  # mT5's never are
        return {
            "vocab_size": native.vocab_size,
            "hidden_size": native.d_model,
            "num_hidden_layers": native.num_layers,
            "decoder_layers": native.num_decoder_layers,
            "num_attention_heads": native.num_heads,
            "head_dim": native.d_kv,
            "intermediate_size": native.d_ff,
            "feed_forward": "gated" if native.is_gated_act else "mlp",
            "hidden_act": native.dense_act_fn,
            "layer_norm_eps": native.layer_norm_epsilon,
            "relative_attention_num_buckets": native.relative_attention_num_buckets,
            "relative_attention_max_distance": native.relative_attention_max_distance,
            "logit_scale": native.d_model**-0.5 if scaled else 1.0,
            "dropout": native.dropout_rate,
            "attention_dropout": native.dropout_rate,
            "activation_dropout": native.dropout_rate,
            **tokens(native, decoder_start=True),
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Express settings of the zoo in a native configuration. Arguments as in the base class."""
        gated = config.feed_forward == "gated"
        act = "gelu" if gated and config.hidden_act == "gelu_new" else config.hidden_act
        return {
            "vocab_size": config.vocab_size,
            "d_model": config.hidden_size,
            "num_layers": config.num_hidden_layers,
            "num_decoder_layers": config.decoder_layers,
            "num_heads": config.num_attention_heads,
            "d_kv": config.head_dim,
            "d_ff": config.intermediate_size,
            "feed_forward_proj": f"gated-{act}" if gated else act,
            "layer_norm_epsilon": config.layer_norm_eps,
            "relative_attention_num_buckets": config.relative_attention_num_buckets,
            "relative_attention_max_distance": config.relative_attention_max_distance,
            "dropout_rate": config.dropout,
            # This is how T5 says whether outputs are scaled; it does not decide what is tied.
            "tie_word_embeddings": config.logit_scale != 1.0,
            **tokens(config, decoder_start=True),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Describe what settings these classes have. Arguments as in the base class."""
        needs = plain_needs(task) | {
            "norm": "rmsnorm",
            "norm_placement": "pre",
            "final_norm": True,
            "position": "t5",
            "feed_forward": ("mlp", "gated"),
            "attention_scale": "none",
            "attention_bias": False,
            "attention_out_bias": False,
            "mlp_bias": False,
            "decoder_attention_heads": config.num_attention_heads,
            "decoder_intermediate_size": config.intermediate_size,
            "share_encoder_decoder_embeddings": True,
        }
        del needs["head_dim"]
        if task == Task.SEQ2SEQ_LM:
            needs |= {"lm_head_bias": False, "logit_scale": (1.0, config.hidden_size**-0.5)}
        return needs

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        found = [] if config.stack == "encoder-decoder" else [f"it is {a_stack(config)}, this is an encoder-decoder"]
        if config.feed_forward == "gated" and config.hidden_act == "gelu":
            found.append("hidden_act='gelu', what it calls gated-gelu is 'gelu_new'")
        if task == Task.SEQ2SEQ_LM and not found and config.decoder_layers > config.num_hidden_layers:
            # transformers 5.23 gives its cache as many layers as the encoder has.
            found.append(f"decoder_layers={config.decoder_layers}, generating fails beyond its encoder's depth")
        return found

    def meaningless(self, task: str) -> tuple[str, ...]:
        """The embedding's further name. Arguments as in the base class."""
        return ("shared.weight",)

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Whether output and embedding are tied, which the settings do not say. Arguments as in the base class."""
        if "lm_head.weight" in state:
            tied = torch.equal(state["lm_head.weight"], state["decoder.embed_tokens.weight"])
            settings["tie_word_embeddings"] = tied
        return state

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Add the embedding's further name. Arguments as in the base class."""
        return {**state, "shared.weight": state["encoder.embed_tokens.weight"]}
