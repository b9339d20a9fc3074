"""GPT-2 and its kin, with norms before the sublayers; GPT-J and CodeGen, with sublayers in parallel after one norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State
from ...transforms import TRANSPOSE, split, split_rows
from ..common import attention, mlp, norms, without
from ..declared import SIZES, Field, choice, same
from ..decoders import (
    CLASSIFIER_DROPOUT,
    FIXED_ROPE,
    GPT2_HEADS,
    ODD,
    PROJECTIONS,
    DecoderFormat,
    fixed_rope_obstacles,
    heads_by_group,
    rotated_columns,
)

GPT2_FIELDS: Mapping[str, str | Field] = {
    **SIZES,
    **same("initializer_range"),
    "intermediate_size": Field("n_inner", lambda native: native.n_inner or 4 * native.n_embd),
    "hidden_act": "activation_function",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}


FOUR_TIMES = {"intermediate_size": lambda config: 4 * config.hidden_size}


def rotated_part(native: Any) -> dict[str, Any]:
    """Read how many columns of a head are rotated."""
    share = {"partial_rotary_factor": native.rotary_dim / (native.n_embd // native.n_head)} if native.rotary_dim else {}
    return {**FIXED_ROPE, **share}


class GptJ(DecoderFormat, name="gptj", rank=200, variant="gptj-style", prefix="transformer.", layers="h.{n}"):
    """GPT-J (Wang and Komatsuzaki 2021)."""

    fields = {**GPT2_FIELDS, "rope_parameters": Field("rotary_dim", rotated_part, rotated_columns)}
    follows = {"embd_pdrop": lambda config: config.dropout}
    always = {
        **dict.fromkeys(("attention_bias", "attention_out_bias"), False),
        **{"position": "rotary-interleaved", "parallel_residual": True, "lm_head_bias": True},
    }
    body = {"embed_tokens": "wte", "norm": "ln_f"}
    layer = {
        "residual.norm_in": "ln_1",
        **attention("attn.{q}_proj", "attn.out_proj"),
        **mlp("mlp.fc_in", "mlp.fc_out"),
    }

    def rotary_obstacles(self, config: ZooConfig) -> list[str]:
        """No scaling, one base, and a part of each head."""
        found = fixed_rope_obstacles(config, "partial_rotary_factor")
        if getattr(config, "rope_parameters", None) is None or not rotated_columns(config) % 2:
            return found
        return [*found, f"{rotated_columns(config)} {ODD}"]


SHARDS = 4  # Into how many groups of heads the projection of queries, values and keys is cut


class CodeGen(GptJ, name="codegen"):
    """CodeGen (Nijkamp et al. 2022): GPT-J with one projection for queries, values and keys."""

    layer = {
        **without(GptJ.layer, *PROJECTIONS),
        tuple(f"self_attn.{p}_proj" for p in "qvk"): ("attn.qkv_proj", split_rows((1, 1, 1), SHARDS)),
    }

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        uneven = config.num_attention_heads % SHARDS
        found = [f"num_attention_heads={config.num_attention_heads} is no multiple of {SHARDS}"] if uneven else []
        return super().obstacles(config, state, task) + found


def transposed(names: dict[str, str]) -> dict[str, object]:
    """Linear layers that are stored transposed."""
    weights = {f"{zoo}.weight": (f"{native}.weight", TRANSPOSE) for zoo, native in names.items()}
    return {**weights, **{f"{zoo}.bias": f"{native}.bias" for zoo, native in names.items()}}


NETWORK, NORMS = mlp("mlp.c_fc", "mlp.c_proj"), norms("ln_1", "ln_2")
LINEAR = {"self_attn.o_proj": "attn.c_proj", **NETWORK}
JOINED = {
    tuple(f"{name}.weight" for name in PROJECTIONS): ("attn.c_attn.weight", TRANSPOSE.then(split(3))),
    tuple(f"{name}.bias" for name in PROJECTIONS): ("attn.c_attn.bias", split(3)),
}


class Gpt2(DecoderFormat, name="gpt2", rank=50, variant="gpt2-style", prefix="transformer.", layers="h.{n}"):
    """GPT-2 (Radford et al. 2019), with linear layers stored transposed and three projections in one."""

    fields = {
        **GPT2_FIELDS,
        "attention_scale": choice("scale_attn_weights", "attention_scale", {"head-dim": True, "none": False}),
        "classifier_dropout": CLASSIFIER_DROPOUT,
    }
    always = {"position": "learned"}
    only = {"add_cross_attention": False, "scale_attn_by_inverse_layer_idx": False}
    follows = GptJ.follows
    body = {"embed_tokens": "wte", "position.weight": "wpe.weight", "norm": "ln_f"}
    layer = {**NORMS, **JOINED, **transposed(LINEAR)}
    heads = GPT2_HEADS


class GptBigCode(Gpt2, name="gpt_bigcode"):
    """SantaCoder and StarCoder (Li et al. 2023): GPT-2 with one key head or one per query head."""

    fields = {
        **Gpt2.fields,
        "num_key_value_heads": Field(
            "multi_query",
            lambda native: 1 if native.multi_query else native.n_head,
            lambda config: config.num_key_value_heads == 1,
            has=lambda config: 1 if config.num_key_value_heads == 1 else config.num_attention_heads,
        ),
    }
    only = {"add_cross_attention": False}
    layer = {**NORMS, **LINEAR, PROJECTIONS: ("attn.c_attn", heads_by_group)}


class OpenAIGpt(Gpt2, name="openai-gpt", variant="post-norm"):
    """The first GPT (Radford et al. 2018): norms after the sublayers."""

    fields = {
        **without(Gpt2.fields, "attention_scale", "intermediate_size"),
        "hidden_act": choice("afn", "hidden_act", {"gelu_new": "gelu", "relu": "relu", "silu": "silu"}),
    }
    always = {**FOUR_TIMES, "position": "learned", "norm_placement": "post", "final_norm": False}
    only = {}
    body = {"embed_tokens": "tokens_embed", "position.weight": "positions_embed.weight"}
    layer = {**norms("ln_1", "ln_2", "norm_out"), **JOINED, **transposed(LINEAR)}


KINDS = {"global": "full_attention", "local": "sliding_attention"}
WORDS = {zoo: native for native, zoo in KINDS.items()}


class GptNeo(DecoderFormat, name="gpt_neo", variant="gpt2-style", prefix="transformer.", layers="h.{n}"):
    """GPT-Neo (Black et al. 2021): unscaled scores, windows layer by layer."""

    fields = {
        **SIZES,
        **same("max_position_embeddings", "initializer_range", "attention_dropout", "classifier_dropout"),
        "intermediate_size": Field(
            "intermediate_size", lambda native: native.intermediate_size or 4 * native.hidden_size
        ),
        "hidden_act": "activation_function",
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "resid_dropout",
        "sliding_window": Field(
            "window_size",
            lambda native: native.window_size if "local" in native.attention_layers else None,
            lambda config: config.sliding_window or config.max_position_embeddings,
        ),
        "layer_types": Field(
            "attention_types",
            lambda native: [KINDS[kind] for kind in native.attention_layers],
            lambda config: [[[WORDS[kind] for kind in config.types_of_layers()], 1]],
        ),
    }
    always = {"position": "learned", "attention_scale": "none", "attention_bias": False}
    follows = {"embed_dropout": lambda config: config.dropout}
    body = Gpt2.body
    layer = {**NORMS, **attention("attn.attention.{q}_proj", "attn.attention.out_proj"), **NETWORK}
    heads = GPT2_HEADS
