"""BLOOM and MPT: decoders with ALiBi as their only positions."""

from __future__ import annotations

from typing import Any

from ...transforms import split, split_groups
from ..base import native_format
from ..declared import biasless, same
from ..decoders import GPT2_HEADS, PROJECTIONS, DecoderFormat
from .gpt_neox import FEED_FORWARD
from .llama import NO_BIASES, PRE_NORMS

FOUR_TIMES = {"intermediate_size": lambda config: 4 * config.hidden_size}


@native_format
class Bloom(DecoderFormat):
    """BLOOM (Scao et al. 2022): a norm on the embeddings, joined projections."""

    name = "bloom"
    variant = "bloom-style"
    prefix = "transformer."
    fields = {
        **same("vocab_size", "hidden_size", "initializer_range", "attention_dropout", "tie_word_embeddings"),
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "hidden_dropout",
    }
    always = {
        **FOUR_TIMES,
        "position": "alibi",
        "hidden_act": ("gelu_pytorch_tanh", "gelu_new"),
        "embedding_norm": True,
        "embedding_norm_eps": lambda config: config.layer_norm_eps,
    }
    only = {"apply_residual_connection_post_layernorm": False}
    layers = "h.{n}"
    body = {"embed_tokens": "word_embeddings", "embedding_norm": "word_embeddings_layernorm", "norm": "ln_f"}
    layer = {
        **PRE_NORMS,
        PROJECTIONS: ("self_attention.query_key_value", lambda config: split_groups(config.num_attention_heads, 1)),
        "self_attn.o_proj": "self_attention.dense",
        **FEED_FORWARD,
    }
    heads = GPT2_HEADS


@native_format
class Mpt(DecoderFormat):
    """MPT (MosaicML 2023): neither biases nor biases of norms."""

    name = "mpt"
    variant = "alibi-decoder"
    prefix = "transformer."
    fields = {
        **same("vocab_size", "initializer_range", "tie_word_embeddings"),
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len",
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
    }
    always = {**NO_BIASES, **FOUR_TIMES, "position": "alibi", "hidden_act": "gelu"}
    only = {"logit_scale": None}
    layers = "blocks.{n}"
    body = {"embed_tokens": "wte", **biasless({"norm": "norm_f"})}
    layer = {
        **biasless({"self_attn_residual.norm_in": "norm_1", "mlp_residual.norm_in": "norm_2"}),
        PROJECTIONS: ("attn.Wqkv", split(3)),
        "self_attn.o_proj": "attn.out_proj",
        "mlp.up_proj": "ffn.up_proj",
        "mlp.down_proj": "ffn.down_proj",
    }
    heads = GPT2_HEADS
    biased_norms = False

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        plain = {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "prefix_lm": False}
        self.refuse(native.attn_config, **plain, qk_ln=False)
        return super().read_config(native, task)
