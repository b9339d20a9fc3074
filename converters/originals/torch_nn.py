"""PyTorch's own torch.nn.Transformer, TransformerEncoder and TransformerDecoder.

They work on features: embeddings, positions and the output projection are left to the caller, so the model of the zoo
is a body to be called with `inputs_embeds`. Its token embedding is zero. Decoders of the zoo are causal by themselves,
as those of PyTorch are with the mask that `Transformer.generate_square_subsequent_mask` makes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.building.builder import config as make_config
from zoo.models import ZooConfig, ZooDecoder, ZooEncoder, ZooEncoderDecoder, ZooPreTrainedModel
from zoo.models.fields import ANY
from zoo.registry import Task

from ..checkpoint import Checkpoint
from ..converter import Converter, Plan
from ..errors import CheckpointKeysError, ConversionError, NotConvertibleError
from ..key_map import KeyMap, Keys, Pair, pairs
from ..native.declared import biasless
from ..symmetries.base import Needs, admissible, plain_needs
from ..transforms import split
from .original import Shapes, count, require_hints

BODIES = (ZooEncoderDecoder, ZooEncoder, ZooDecoder)
ACTIVATIONS = {F.relu: "relu", F.gelu: "gelu"}  # Values of a layer's `activation` other than modules

NEEDS: Needs = {  # Settings that its models express, by field; those of embeddings are not read
    **plain_needs(Task.FEATURE_EXTRACTION),
    **dict.fromkeys(("attention_bias", "attention_out_bias", "mlp_bias", "final_norm", "scale_embedding"), ANY),
    "type_vocab_size": ANY,
    "norm_placement": ("pre", "post"),
    "position": "none",
}


class TorchNN(Converter, name="torch-nn"):
    """torch.nn's three classes, with the same keys in any project's module around them."""

    unsaid: ClassVar[Mapping[str, str]] = dict(
        num_attention_heads="nhead", norm_placement="norm_first: 'pre' if true, else 'post'", hidden_act="activation"
    )

    def recognises(self, keys: Collection[str]) -> bool:
        prefixes = ("", "encoder.", "decoder.")
        return any(f"{prefix}layers.0.self_attn.in_proj_weight" in keys for prefix in prefixes)

    def plan(self, checkpoint: Checkpoint, **hints: Any) -> Plan:
        given = Shapes(checkpoint.tensors, self.name)
        model_class, sizes = read_sizes(given)
        hints = {**sizes, **ask(checkpoint.module), **hints}
        hints.pop("keep_dead", None)
        require_hints(self.name, self.unsaid, hints)
        stack: dict[str, Any] = dict.fromkeys(("is_decoder", "add_cross_attention"), model_class is ZooDecoder)
        stack["is_encoder_decoder"] = model_class is ZooEncoderDecoder
        fixed = (name for name, need in NEEDS.items() if need is not ANY and not isinstance(need, tuple))
        plain = {name: NEEDS[name] for name in fixed if not callable(NEEDS[name])}
        settings = {**plain, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "vocab_size": 1, **hints}
        variant = "pre-norm" if settings["norm_placement"] == "pre" else "post-norm"
        config = make_config(variant, Task.FEATURE_EXTRACTION, **stack, **settings)
        if wrong := unlike(config):
            raise NotConvertibleError(self.name, wrong)
        norm_biases = any(key.endswith("layers.0.norm1.bias") for key in given)  # none in modules with bias=False
        return Plan(model_class, config, key_map(model_class, config, norm_biases))

    def plan_back(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        wrong = unlike(config)
        if config.attention_out_bias != config.attention_bias or config.mlp_bias != config.attention_bias:
            wrong.append("some layers have biases and others do not")
        if model_class not in BODIES:
            wrong.append(f"{model_class.__name__} has a head, it has bodies only")
        elif not config.final_norm and model_class is ZooEncoderDecoder:
            wrong.append("the stacks do not end with a norm")
        if config.quirks or wrong:
            raise NotConvertibleError(self.name, [*wrong, *(f"the quirk {quirk} is on" for quirk in config.quirks)])
        return key_map(model_class, config, bool(config.attention_bias))


def unlike(config: ZooConfig) -> list[str]:
    needs = {field: admissible(need, config) for field, need in NEEDS.items()}
    return [
        f"{field} is {getattr(config, field)!r}, it has {' or '.join(map(repr, values))}"
        for field, values in needs.items()
        if ANY not in values and getattr(config, field) not in values
    ]


def read_sizes(tensors: Mapping[str, Tensor]) -> tuple[type[ZooPreTrainedModel], dict[str, Any]]:
    stacks = [prefix for prefix in ("encoder.", "decoder.") if any(key.startswith(prefix) for key in tensors)]
    if len(stacks) == 1:
        other = "decoder." if stacks == ["encoder."] else "encoder."
        given = {key: tuple(value.shape) for key, value in tensors.items()}
        raise CheckpointKeysError(given, {**given, f"{other}layers.0.self_attn.in_proj_weight": ()}, TorchNN.name)
    first = stacks[0] if stacks else ""
    crossing = any("multihead_attn" in key for key in tensors if key.startswith("layers."))
    inner, width = tensors[f"{first}layers.0.linear1.weight"].shape
    has_bias = f"{first}layers.0.linear1.bias" in tensors
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": count(tensors, rf"{first}layers\.(\d+)\."),
        "attention_bias": has_bias,
        "attention_out_bias": has_bias,
        "mlp_bias": has_bias,
        "final_norm": f"{first}norm.weight" in tensors,
    }
    if stacks:
        sizes["decoder_layers"] = count(tensors, r"decoder\.layers\.(\d+)\.")
        sizes["decoder_intermediate_size"] = tensors["decoder.layers.0.linear1.weight"].shape[0]
        return ZooEncoderDecoder, sizes
    return (ZooDecoder if crossing else ZooEncoder), sizes


def ask(module: nn.Module | None) -> dict[str, Any]:
    """Settings that all layers of a module have, and norms after them; ConversionError where some differ."""
    try:
        stacks: list[Any] = [getattr(module, name, module) for name in ("encoder", "decoder")]
        first, *others = [settings_of(layer) for stack in stacks for layer in stack.layers]
        parts = [(place, part) for stack in stacks for place, part in stack.named_modules()]
        others += [{"layer_norm_eps": part.eps} for _, part in parts if isinstance(part, nn.LayerNorm)]
        others += [{"dropout": part.p} for place, part in parts if re.search(r"dropout\d$", place)]
        attentions = [part for _, part in parts if isinstance(part, nn.MultiheadAttention)]
        others += [{"num_attention_heads": one.num_heads, "attention_dropout": one.dropout} for one in attentions]
    except (AttributeError, ValueError, TypeError):
        return {}
    for place, part in parts:
        if re.search(r"(^|\.)norm\d?$", place) and not isinstance(part, nn.LayerNorm):
            raise ConversionError(f"{place} is {type(part).__name__}, only LayerNorm can be converted")
    for name in first:
        if len(values := {other[name] for other in (first, *others) if name in other}) > 1:
            raise ConversionError(f"{name} is not the same in all layers: {', '.join(sorted(map(str, values)))}")
    return first


def settings_of(layer: Any) -> dict[str, Any]:
    settings = {
        "num_attention_heads": layer.self_attn.num_heads,
        "norm_placement": "pre" if layer.norm_first else "post",
        "layer_norm_eps": layer.norm1.eps,
        "dropout": layer.dropout1.p,
        "attention_dropout": layer.self_attn.dropout,
        "activation_dropout": layer.dropout.p,
    }
    if isinstance(activation := layer.activation, nn.GELU):
        return {**settings, "hidden_act": "gelu" if activation.approximate == "none" else "gelu_pytorch_tanh"}
    named = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Tanh: "tanh"}.get(type(activation), ACTIVATIONS.get(activation))
    return settings if named is None else {**settings, "hidden_act": named}


def key_map(model_class: type[ZooPreTrainedModel], config: ZooConfig, norm_biases: bool) -> KeyMap:
    rows: list[Pair] = []
    stacks = ("encoder.", "decoder.") if model_class is ZooEncoderDecoder else ("",)
    for stack in stacks:
        crossing = stack == "decoder." or model_class is ZooDecoder
        rows += pairs(keys_of_stack(config.norm_placement, crossing, norm_biases), stack, stack)
    return KeyMap.of(*rows, added=[f"{stack}embed_tokens.weight" for stack in stacks], owner=TorchNN.name)


def keys_of_stack(placement: str, crossing: bool, norm_biases: bool) -> Keys:
    layer, slot = "layers.{n}.", "norm_in" if placement == "pre" else "norm_out"
    attentions = {"self_attn": "self_attn", **({"cross_attn": "multihead_attn"} if crossing else {})}
    keys: dict[Any, Any] = {f"{layer}mlp.up_proj": f"{layer}linear1", f"{layer}mlp.down_proj": f"{layer}linear2"}
    for ours, theirs in attentions.items():
        projections = tuple(f"{layer}{ours}.{name}_proj.{{p}}" for name in "qkv")
        keys[projections] = f"{layer}{theirs}.in_proj_{{p}}", split(3)
        keys[f"{layer}{ours}.o_proj"] = f"{layer}{theirs}.out_proj"
    sublayers = enumerate((*attentions, "mlp"), start=1)
    norms = {f"{layer}{ours}_residual.{slot}": f"{layer}norm{number}" for number, ours in sublayers}
    norms["norm"] = "norm"
    return {**keys, **(norms if norm_biases else biasless(norms))}
