"""GPT-NeoX, BLOOM, MPT, StableLM, StarCoder2, Jais 2, Falcon: layer norms, with rotary positions or ALiBi."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...key_map import Keys
from ...symmetries.base import State, change
from ...transforms import split
from ..common import changed_exactly, mlp, norms, share_norms, without
from ..declared import ALL_BIASES, EMBEDDING_NORM, SIZES, Field, biasless, choice, one_bias, same
from ..decoders import GPT2_HEADS, ONE_WINDOW, PARTIAL_ROPE, PROJECTIONS, ROPE, DecoderFormat, heads_by_group
from .gpt2 import FOUR_TIMES
from .llama import ATTENTION, ATTENTION_BIAS, DECODER_SIZES, GATED, NO_BIASES, PRE_NORMS, QK_LAYERNORMS

NORMS = ("input_layernorm", "post_attention_layernorm")
READERS = ("attention.query_key_value", "mlp.dense_h_to_4h")


def joined(attention: str) -> Keys:
    """Keys of a layer with queries, keys and values in one projection, without its norms."""
    return {
        PROJECTIONS: (f"{attention}.query_key_value", heads_by_group),
        "self_attn.o_proj": f"{attention}.dense",
        **mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    }


class ParallelOrNot(DecoderFormat):
    """A decoder with sublayers that are parallel after one norm, or not: its `layer` leaves the norms out."""

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        return {**self.layer, **({"residual.norm_in": "input_layernorm"} if config.parallel_residual else PRE_NORMS)}


class GptNeoX(ParallelOrNot, name="gpt_neox", variant="gpt-neox-style", prefix="gpt_neox.", heads=GPT2_HEADS):
    """GPT-NeoX and Pythia (Black et al. 2022)."""

    fields = {
        **without(DECODER_SIZES, "num_key_value_heads", "head_dim"),
        **ATTENTION_BIAS,
        **same("layer_norm_eps", "classifier_dropout"),
        "rope_parameters": PARTIAL_ROPE,
        "parallel_residual": "use_parallel_residual",
        "dropout": "hidden_dropout",
    }
    always = {"position": "rotary"}
    body = {"embed_tokens": "embed_in", "norm": "final_layer_norm"}
    layer = joined("attention")

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Make one norm of two where sublayers are parallel, by what reads them."""
        state = super().read_weights(native, state, task)
        if not native.use_parallel_residual:
            return state
        layers = [f"gpt_neox.layers.{layer}." for layer in range(native.num_hidden_layers)]
        return share_norms(state, layers, NORMS, READERS, self.name)

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Folded norms bring biases along."""
        settings["attention_bias"] = any(name.endswith("query_key_value.bias") for name in state)
        return state

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Give both sublayers the norm that they share."""
        state = super().write_weights(config, state, task)
        if not config.parallel_residual:
            return state
        first, second = (f".{norm}." for norm in NORMS)
        return {**state, **{name.replace(first, second): value for name, value in state.items() if first in name}}


class Bloom(DecoderFormat, name="bloom", variant="bloom-style", prefix="transformer.", layers="h.{n}"):
    """BLOOM (Scao et al. 2022): a norm on the embeddings, joined projections."""

    fields = {
        **SIZES,
        **same("initializer_range", "attention_dropout"),
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "hidden_dropout",
    }
    always = {**FOUR_TIMES, "position": "alibi", "hidden_act": ("gelu_pytorch_tanh", "gelu_new"), **EMBEDDING_NORM}
    only = {"apply_residual_connection_post_layernorm": False}
    body = {"embed_tokens": "word_embeddings", "embedding_norm": "word_embeddings_layernorm", "norm": "ln_f"}
    layer = {**PRE_NORMS, **joined("self_attention")}
    heads = GPT2_HEADS


class Mpt(DecoderFormat, name="mpt", variant="alibi-decoder", prefix="transformer.", layers="blocks.{n}"):
    """MPT (MosaicML 2023): neither biases nor biases of norms."""

    fields = dict(
        SIZES, **same("initializer_range"), max_position_embeddings="max_seq_len", layer_norm_eps="layer_norm_epsilon"
    )
    always = {**NO_BIASES, **FOUR_TIMES, "position": "alibi", "hidden_act": "gelu"}
    only = {"logit_scale": None}
    body = {"embed_tokens": "wte", **biasless({"norm": "norm_f"})}
    layer = {
        **biasless(norms("norm_1", "norm_2")),
        PROJECTIONS: ("attn.Wqkv", split(3)),
        "self_attn.o_proj": "attn.out_proj",
        **mlp("ffn.up_proj", "ffn.down_proj"),
    }
    heads = GPT2_HEADS
    biased_norms = False

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        plain = {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "prefix_lm": False}
        self.refuse(native.attn_config, **plain, qk_ln=False)
        return super().read_config(native, task)


STORED_NORMS = r"norm\.weight$"


class NormedLike(DecoderFormat, variant="pre-norm"):
    """Base of these classes."""

    fields = {**DECODER_SIZES, "layer_norm_eps": "layer_norm_eps", "rope_parameters": ROPE}
    always = {"position": "rotary"}
    body = {"embed_tokens": "embed_tokens", "norm": "norm"}
    layer = {**ATTENTION, **PRE_NORMS, **without(GATED, "mlp.gate_proj")}


class StableLm(ParallelOrNot, NormedLike, name="stablelm"):
    """StableLM 2 (Bellagente et al. 2024)."""

    fields = {
        **without(NormedLike.fields, "head_dim"),
        "rope_parameters": PARTIAL_ROPE,
        "attention_bias": "use_qkv_bias",
        "parallel_residual": "use_parallel_residual",
        "dropout": "hidden_dropout",
    }
    always = {**NO_BIASES, "position": "rotary", "feed_forward": "gated"}
    only = {"qk_layernorm": False}
    layer = {**ATTENTION, **GATED}


class Starcoder2(NormedLike, name="starcoder2", rank=200):
    """StarCoder 2 (Lozhkov et al. 2024)."""

    fields = {
        **NormedLike.fields,
        **ONE_WINDOW,
        **one_bias("use_bias", ALL_BIASES),
        "layer_norm_eps": "norm_epsilon",
        "dropout": "residual_dropout",
    }
    follows = {"embedding_dropout": lambda config: config.dropout}
    layer = {**ATTENTION, **PRE_NORMS, **mlp("mlp.c_fc", "mlp.c_proj")}


class Jais2(NormedLike, name="jais2"):
    """Jais 2 (Inception, MBZUAI and Cerebras 2025)."""

    fields = {**NormedLike.fields, **ATTENTION_BIAS, **same("mlp_bias")}


class Nemotron(NormedLike, name="nemotron"):
    """Nemotron-4 and Minitron (Parmar et al. 2024): weights of norms are stored as differences from one."""

    fields = dict(
        NormedLike.fields, **ATTENTION_BIAS, **same("mlp_bias"), layer_norm_eps="norm_eps", rope_parameters=PARTIAL_ROPE
    )

    def read_weights(self, native: Any, state: State, task: str) -> State:
        state = super().read_weights(native, state, task)
        return changed_exactly(state, lambda state: change(state, STORED_NORMS, lambda weight: weight + 1), self.name)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        state = super().write_weights(config, state, task)
        return change(state, STORED_NORMS, lambda weight: weight - 1)


class Persimmon(NormedLike, name="persimmon"):
    """Persimmon (Adept 2023): joined projections, biases everywhere."""

    fields = {
        **without(NormedLike.fields, "num_key_value_heads", "head_dim"),
        "rope_parameters": PARTIAL_ROPE,
        "dropout": "hidden_dropout",
        "qk_norm": choice("qk_layernorm", "qk_norm", {None: False, "head": True}),
    }
    body = {"embed_tokens": "embed_tokens", "norm": "final_layernorm"}
    layer = {**joined("self_attn"), **QK_LAYERNORMS, **PRE_NORMS}


FALCON_READERS = ("self_attention.query_key_value", "mlp.dense_h_to_4h")


def is_grouped(config: ZooConfig) -> bool:
    """Whether it has several key heads, and fewer than query heads: only the new architecture supports that."""
    return bool(1 < config.num_key_value_heads < config.num_attention_heads)


class Falcon(ParallelOrNot, name="falcon", variant="falcon-style", prefix="transformer.", heads=GPT2_HEADS):
    """Falcon with rotary positions (Almazrouei et al. 2023)."""

    fields = {
        **SIZES,
        **same("max_position_embeddings", "initializer_range"),
        "num_key_value_heads": Field(
            "num_kv_heads",
            lambda native: (
                1 if native.multi_query and not native.new_decoder_architecture else int(native.num_kv_heads)
            ),
        ),
        "intermediate_size": "ffn_hidden_size",
        "hidden_act": "activation",
        "layer_norm_eps": "layer_norm_epsilon",
        "rope_parameters": ROPE,
        "dropout": "hidden_dropout",
        "parallel_residual": Field(
            "parallel_attn",
            lambda native: native.parallel_attn or native.new_decoder_architecture,
            has=lambda config: True if is_grouped(config) else config.parallel_residual,
        ),
        **one_bias("bias", ALL_BIASES),
    }
    always = {"position": "rotary"}
    only = {"alibi": False}
    follows = {
        "new_decoder_architecture": is_grouped,
        "multi_query": lambda config: config.num_key_value_heads == 1,
        "num_ln_in_parallel_attn": lambda config: 1 if is_grouped(config) else None,
    }
    layers = "h.{n}"
    body = {"embed_tokens": "word_embeddings", "norm": "ln_f"}
    layer = joined("self_attention")

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Make one norm of two in the new architecture."""
        state = super().read_weights(native, state, task)
        layers = [f"transformer.h.{layer}." for layer in range(native.num_hidden_layers)]
        if f"{layers[0]}ln_mlp.weight" not in state:
            return state
        state = share_norms(state, layers, ("ln_attn", "ln_mlp"), FALCON_READERS, self.name)
        state = {name.replace(".ln_attn.", ".input_layernorm."): value for name, value in state.items()}
        for layer in layers:
            if f"{layer}mlp.dense_h_to_4h.bias" in state:
                output = state[f"{layer}mlp.dense_4h_to_h.weight"]
                state.setdefault(f"{layer}mlp.dense_4h_to_h.bias", output.new_zeros(output.shape[0]))
        return state

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Folded norms bring biases along."""
        biases = {"attention_bias": "query_key_value", "attention_out_bias": "dense", "mlp_bias": "dense_4h_to_h"}
        for field, module in biases.items():
            settings[field] = any(name.endswith(f".{module}.bias") for name in state)
        return state
