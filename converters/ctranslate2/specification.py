"""Fills CTranslate2's model specification with a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import CONFIG_NAME

from zoo.base.files import read_json
from zoo.models import POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.models.attention import attention_scaling

from ..native.common import TABLE_POSITIONS
from ..symmetries import Route
from ..symmetries.base import State, stacks
from ..verification import ends_of
from ..weights import change_config, save_generation, weights_of
from .planning import ABSOLUTE, ACTIVATIONS, ROTARY, library, rotated
from .running import read_vocabularies

SHORTEST_TABLE = 2048
"""Rows of a table of computed positions, which have no limit in the zoo; more if the configuration has more."""


def specify(config: ZooConfig, state: State) -> Any:
    specs = library("ctranslate2.specs.transformer_spec")
    parts = list(stacks(config).items())
    if config.stack == "encoder":
        (prefix, stack) = parts[0]
        return specs.TransformerEncoderModelSpec(_encoder(specs, prefix, stack, state))
    prefix, stack = parts[-1]
    decoder = _decoder(specs, prefix, stack, state)
    if config.stack == "decoder":
        return specs.TransformerDecoderModelSpec(decoder)
    return specs.TransformerSpec(_encoder(specs, *parts[0], state), decoder)


def _encoder(specs: Any, prefix: str, config: ZooConfig, state: State) -> Any:
    types = {}
    if config.type_vocab_size:
        common = library("ctranslate2.specs.common_spec")
        types = {"num_source_embeddings": 2, "embeddings_merge": common.EmbeddingsMerge.ADD}
    spec = specs.TransformerEncoderSpec(relative_attention_bias=config.position == "t5", **types, **_common(config))
    if types:
        spec.embeddings[1].weight = state[f"{prefix}token_types.weight"]
    _set_embedding(spec.embeddings[0], spec, prefix, config, state)
    _set_stack(spec, prefix, config, state)
    return spec


def _decoder(specs: Any, prefix: str, config: ZooConfig, state: State) -> Any:
    grouped = {"parallel_residual": True, "shared_layer_norm": True} if config.parallel_residual else {}
    spec = specs.TransformerDecoderSpec(
        with_encoder_attention=bool(config.add_cross_attention),
        relative_attention_bias=config.position == "t5",
        alibi=config.position == "alibi",
        **grouped,
        **_common(config),
    )
    _set_embedding(spec.embeddings, spec, prefix, config, state)
    _set_stack(spec, prefix, config, state)
    _set_linear(spec.projection, state, "lm_head")
    if config.logit_scale != 1.0:
        spec.scale_outputs = np.float32(config.logit_scale)
    if config.final_logit_softcapping is not None:
        spec.final_logit_softcapping = np.float32(config.final_logit_softcapping)
    return spec


def _common(config: ZooConfig) -> dict[str, Any]:
    common = library("ctranslate2.specs.common_spec")
    found: dict[str, Any] = {
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "pre_norm": config.norm_placement != "post",
        "no_final_norm": not config.final_norm,
        "activation": getattr(common.Activation, ACTIVATIONS[config.hidden_act]),
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.feed_forward == "gated",
        "rms_norm": config.norm == "rmsnorm",
        "head_dim": config.head_dim,
        "qk_norm": config.qk_norm is not None,
        "pre_post_layer_norm": config.norm_placement == "sandwich",
    }
    if config.num_key_value_heads != config.num_attention_heads:
        found["num_heads_kv"] = config.num_key_value_heads
    if config.position in ROTARY:
        rope = config.rope_parameters
        found |= {
            "rotary_dim": rotated(config),
            "rotary_interleave": config.position == "rotary-interleaved",
            "rotary_base": rope["rope_theta"],
        }
    return found


def _set_embedding(embedding: Any, spec: Any, prefix: str, config: ZooConfig, state: State) -> None:
    embedding.weight = state[f"{prefix}embed_tokens.weight"]
    spec.scale_embeddings = config.scale_embedding
    if config.position in TABLE_POSITIONS:
        spec.position_encodings.encodings = state[f"{prefix}position.weight"]
    elif config.position in ABSOLUTE:
        rows = max(config.max_position_embeddings, SHORTEST_TABLE)
        zeros = torch.zeros(1, rows, config.hidden_size)
        table = POSITIONS.get(config.position)(config).embed(zeros, torch.arange(rows)[None])[0]
        spec.position_encodings.encodings = table
    if config.embedding_norm:
        _set_norm(spec.layernorm_embedding, state, f"{prefix}embedding_norm")


def _set_stack(spec: Any, prefix: str, config: ZooConfig, state: State) -> None:
    if config.final_norm:
        if not hasattr(spec, "layer_norm"):  # a post-norm stack may end with one as well, as in torch.nn.Transformer
            common = library("ctranslate2.specs.common_spec")
            spec.__dict__["layer_norm"] = common.LayerNormSpec(rms_norm=config.norm == "rmsnorm")
        _set_norm(spec.layer_norm, state, f"{prefix}norm")
    for number, layer in enumerate(spec.layer):
        _set_layer(layer, f"{prefix}layers.{number}.", config, state)
        attention = layer.self_attention
        if config.position == "t5":
            attention.relative_attention_bias = state[f"{prefix}position.weight"]
            attention.relative_attention_max_distance = np.int32(config.relative_attention_max_distance)


def _set_layer(layer: Any, prefix: str, config: ZooConfig, state: State) -> None:
    _set_attention(layer.self_attention, f"{prefix}self_attn.", config, state, fused="qkv")
    gated = config.feed_forward == "gated"
    _set_linear(layer.ffn.linear_0, state, f"{prefix}mlp.{'gate' if gated else 'up'}_proj")
    if gated:
        _set_linear(layer.ffn.linear_0_noact, state, f"{prefix}mlp.up_proj")
    _set_linear(layer.ffn.linear_1, state, f"{prefix}mlp.down_proj")
    parts = {"self_attn": layer.self_attention, "mlp": layer.ffn}
    if config.add_cross_attention:
        _set_attention(layer.attention, f"{prefix}cross_attn.", config, state, fused="kv")
        parts["cross_attn"] = layer.attention
    if config.parallel_residual:
        norms = {"residual.norm_in": layer.shared_layer_norm}
    elif config.norm_placement == "sandwich":
        norms = {
            "self_attn_residual.norm_in": layer.input_layer_norm,
            "self_attn_residual.norm_branch": layer.post_attention_layer_norm,
            "mlp_residual.norm_in": layer.pre_feedforward_layer_norm,
            "mlp_residual.norm_branch": layer.post_feedforward_layer_norm,
        }
    else:
        slot = "norm_in" if config.norm_placement == "pre" else "norm_out"
        norms = {f"{name}_residual.{slot}": part.layer_norm for name, part in parts.items()}
    for name, norm in norms.items():
        _set_norm(norm, state, f"{prefix}{name}")


def _set_attention(attention: Any, prefix: str, config: ZooConfig, state: State, fused: str) -> None:
    separate = [f"{prefix}{name}_proj" for name in "qkv" if name not in fused]
    together = [f"{prefix}{name}_proj" for name in fused]
    for linear, names in zip(attention.linear, [*([name] for name in separate), together], strict=False):
        linear.weight = torch.cat([state[f"{name}.weight"] for name in names])
        if f"{names[0]}.bias" in state:
            linear.bias = torch.cat([state[f"{name}.bias"] for name in names])
    _set_linear(attention.linear[-1], state, f"{prefix}o_proj")
    attention.queries_scale = np.float32(attention_scaling(config))
    if config.qk_norm is not None:
        _set_norm(attention.q_norm, state, f"{prefix}q_norm")
        _set_norm(attention.k_norm, state, f"{prefix}k_norm")


def _set_linear(linear: Any, state: State, name: str) -> None:
    linear.weight = state[f"{name}.weight"]
    if f"{name}.bias" in state:
        linear.bias = state[f"{name}.bias"]


def _set_norm(norm: Any, state: State, name: str) -> None:
    norm.gamma = state[f"{name}.weight"]
    if f"{name}.bias" in state:
        norm.beta = state[f"{name}.bias"]


def write_ctranslate2(
    model: ZooPreTrainedModel, folder: Path, route: Route, dtype: str = "float32", tokenizers: Path | None = None
) -> None:
    config = route.config
    # Quantisation scales weights in place, also those that are still the model's own.
    copies = dtype != "float32"
    state = route({name: tensor.to("cpu", torch.float32, copy=copies) for name, tensor in weights_of(model).items()})
    spec = specify(config, state)
    vocabularies = read_vocabularies(config, tokenizers)
    if config.stack == "encoder-decoder":
        spec.register_source_vocabulary(list(vocabularies.source))
        spec.register_target_vocabulary(list(vocabularies.target))
        spec.config.decoder_start_token = vocabularies.target[int(config.decoder_start_token_id or 0)]
    else:
        spec.register_vocabulary(list(vocabularies.source))
    tokens, ends = vocabularies.target if config.stack != "encoder" else vocabularies.source, ends_of(config)
    first = next((number for number in (config.bos_token_id, *ends, 0) if number is not None), 0)
    spec.config.bos_token, spec.config.eos_token = tokens[first], tokens[ends[0] or 0]
    spec.config.unk_token = next((one for one in ("[UNK]", "<unk>") if one in tokens), tokens[config.pad_token_id or 0])
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    # The zoo's own settings, and those that CTranslate2 reads.
    own = json.loads(model.config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]}
    change_config(folder, {**own, **read_json(folder / CONFIG_NAME)})
    save_generation(model, folder)
