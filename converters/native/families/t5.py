"""T5, Gemma, Gemma 2, and T5Gemma: an encoder and a decoder that are each what Gemma 2 is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling
from zoo.models.configuration import repeat_pattern
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import Needs, State
from ..common import norms, tokens, without
from ..declared import SIZES, Field, NativeFormat, same
from ..decoders import ROPE_BY_LAYER, WINDOWS_BY_LAYER
from .llama import ATTENTION, ATTENTION_BIAS, GATED, NO_BIASES, PRE_NORMS, QK_NORMS, LlamaLike


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
        of_both, of_each = "{s}.layers.{n}", {"encoder": 1, "decoder": 2}
        relative = "{s}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        keys = {"{s}.embed_tokens": "{s}.embed_tokens", "{s}.position": relative, "{s}.norm": "{s}.final_layer_norm"}
        keys |= {f"{of_both}.self_attn.{p}_proj": f"{{s}}.block.{{n}}.layer.0.SelfAttention.{p}" for p in "qkvo"}
        keys[f"{of_both}.self_attn_residual.norm_in"] = "{s}.block.{n}.layer.0.layer_norm"
        cross, zoo = "decoder.block.{n}.layer.1", "decoder.layers.{n}.cross_attn"
        keys |= {f"{zoo}.{p}_proj": f"{cross}.EncDecAttention.{p}" for p in "qkvo"}
        keys[f"{zoo}_residual.norm_in"] = f"{cross}.layer_norm"
        names = {"up_proj": "wi", "down_proj": "wo"}
        if config.feed_forward == "gated":
            names |= {"up_proj": "wi_1", "gate_proj": "wi_0"}
        for stack, place in of_each.items():
            native, zoo = f"{stack}.block.{{n}}.layer.{place}", f"{stack}.layers.{{n}}.mlp"
            keys[f"{zoo}_residual.norm_in"] = f"{native}.layer_norm"
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


SANDWICH_NORMS = {
    **norms("input_layernorm", "pre_feedforward_layernorm"),
    **norms("post_attention_layernorm", "post_feedforward_layernorm", "norm_branch"),
}


def is_whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-9 * number


CAPPED = {
    **LlamaLike.fields,
    **ATTENTION_BIAS,
    **WINDOWS_BY_LAYER,
    **same("attn_logit_softcapping", "final_logit_softcapping"),
    "hidden_act": "hidden_activation",
    "attention_scale": Field(
        "query_pre_attn_scalar",
        lambda native: native.query_pre_attn_scalar**0.5,
        lambda config: round(attention_scaling(config) ** -2),
        has=lambda config: config.attention_scale if is_whole(attention_scaling(config) ** -2) else "head-dim",
    ),
}


class Gemma(LlamaLike, name="gemma"):
    """Gemma (Gemma team 2024)."""

    fields = {**LlamaLike.fields, **ATTENTION_BIAS}
    always = {**LlamaLike.always, "norm": "zero-centered-rmsnorm", "scale_embedding": True}
    only = {"use_bidirectional_attention": None}


class Gemma2(Gemma, name="gemma2", variant="gemma2-style"):
    """Gemma 2 (Gemma team 2024)."""

    fields = CAPPED
    always = {**Gemma.always, "norm_placement": "sandwich"}
    layer = {**ATTENTION, **GATED, **SANDWICH_NORMS}


class VaultGemma(Gemma, name="vaultgemma"):
    """VaultGemma (Sinha et al. 2025): Gemma 2 without the norms after the sublayers."""

    fields = CAPPED
    layer = {**LlamaLike.layer, **PRE_NORMS, "mlp_residual.norm_in": "pre_feedforward_layernorm"}


class Gemma3(Gemma2, name="gemma3_text", variant="gemma3-style"):
    """Gemma 3's language model (Gemma team 2025): norms on queries and keys as well, two kinds of wavelengths."""

    fields = {**without(CAPPED, "attn_logit_softcapping"), **ROPE_BY_LAYER}  # it has the field, and does not read it
    always = {**Gemma2.always, "qk_norm": "head"}
    only = {"use_bidirectional_attention": False}
    layer = {**Gemma2.layer, **QK_NORMS}


class Stack(Gemma2):
    """Kinds of its stacks."""

    fields = {**Gemma2.fields, **dict.fromkeys(("dropout", "activation_dropout"), "dropout_rate")}


STACK = Stack()

OF_THE_DECODER = {  # Fields that may differ between the two stacks, and the zoo's names of the decoder's
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
    "intermediate_size": "decoder_intermediate_size",
    "vocab_size": "decoder_vocab_size",
    "final_logit_softcapping": "final_logit_softcapping",
}

OF_BOTH = ("tie_word_embeddings", "initializer_range", "pad_token_id", "bos_token_id", "eos_token_id")
"""Settings of both stacks."""

NORMS = {
    **SANDWICH_NORMS,
    "self_attn_residual.norm_in": "pre_self_attn_layernorm",
    "self_attn_residual.norm_branch": "post_self_attn_layernorm",
    "cross_attn_residual.norm_in": "pre_cross_attn_layernorm",
    "cross_attn_residual.norm_branch": "post_cross_attn_layernorm",
}
CROSS_ATTENTION = tuple(f"cross_attn.{p}_proj" for p in "qkvo")


class T5Gemma(NativeFormat, name="t5gemma", variant="t5gemma-style"):
    """T5Gemma (Zhang et al. 2025) with stacks of one width."""

    stack = "encoder-decoder"
    padding = ", by which it finds padding"
    body = {
        **same("{s}.embed_tokens.weight", "{s}.norm.weight"),
        **same(*(f"{{s}}.layers.{{n}}.{zoo}" for zoo in (*ATTENTION, *CROSS_ATTENTION, *GATED))),
        **{f"{{s}}.layers.{{n}}.{zoo}.weight": f"{{s}}.layers.{{n}}.{native}.weight" for zoo, native in NORMS.items()},
    }
    heads = {"seq2seq-lm": {"lm_head.weight": "lm_head.out_proj.weight"}, "feature-extraction": {}}
    reasons = {**STACK.reasons, "share_encoder_decoder_embeddings": "source and target have an embedding each"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        own, decoder = (STACK.read_config(stack, task) for stack in (native.encoder, native.decoder))
        heads = decoder["num_attention_heads"]
        follows = own["head_dim"] * own["num_attention_heads"] == own["hidden_size"]
        grouped = own["num_key_value_heads"] != own["num_attention_heads"]
        layer_types = repeat_pattern(own["layer_types"], decoder["num_hidden_layers"])
        expected = {
            **own,
            "head_dim": own["hidden_size"] // heads if follows else own["head_dim"],
            "num_key_value_heads": own["num_key_value_heads"] if grouped else heads,
            "layer_types": layer_types,
            "sliding_window": own["sliding_window"] if "sliding_attention" in layer_types else None,
        }
        wrong = [
            f"decoder.{name} is {decoder[name]!r}, with this encoder only {value!r} can be converted"
            for name, value in expected.items()
            if decoder[name] != value and name not in (*OF_THE_DECODER, *OF_BOTH)
        ]
        padding = {stack.pad_token_id for stack in (native, native.encoder, native.decoder)}
        if len(padding) > 1 or None in padding:
            wrong.append(f"pad_token_id of the model and its stacks is {padding}, only one id for all can be converted")
        if wrong:
            raise NoCounterpartError(self.name, wrong)
        return {
            **own,
            **{zoo: decoder[name] for name, zoo in OF_THE_DECODER.items()},
            "tie_word_embeddings": native.tie_word_embeddings,
            "initializer_range": native.initializer_range,
            "share_encoder_decoder_embeddings": False,
            **tokens(native, "decoder"),
            "decoder_start_token_id": native.decoder.bos_token_id,
        }

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        encoder, decoder = (
            {name: value for name, value in STACK.write_config(stack, task).items() if name not in STACK.only}
            for stack in (config, config.decoder_config())
        )
        return {
            "encoder": encoder,
            "decoder": {**decoder, "bos_token_id": config.decoder_start_token_id},
            "vocab_size": config.decoder_vocab_size,
            "dropout_rate": config.dropout,
            "attention_dropout": config.attention_dropout,
            "tie_word_embeddings": config.tie_word_embeddings,
            "initializer_range": config.initializer_range,
            **tokens(config, self.stack),
        }

    def needs(self, config: ZooConfig, task: str) -> Needs:
        head = {"lm_head_bias": False} if task == Task.SEQ2SEQ_LM else {}
        return {**STACK.needs(config, task), "share_encoder_decoder_embeddings": False, **head}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        if found := super().obstacles(config, state, task):
            return found
        found = STACK.rotary_obstacles(config)
        if config.decoder_start_token_id == config.pad_token_id and task == Task.SEQ2SEQ_LM:
            found.append("decoder_start_token_id is pad_token_id, which it takes for padding")
        return found

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        masked = f"without an attention_mask {self.name} takes every pad_token_id for padding, the zoo does not"
        return [masked, *super().differences(native, read, config)]
