"""Settings of plain models, out of a configuration of the zoo."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from zoo.models import TASK_CLASSES, UnitHead
from zoo.models.attentions.kv_sharing import SharedKeyValueAttention
from zoo.models.multi_token_prediction import LOSS_WEIGHT
from zoo.models.parts import FEED_FORWARDS, PART_FIELDS
from zoo.models.residual import deepnorm_constants
from zoo.models.transformer import build_by_settings, transformer_of
from zoo.models.widths import width_factor
from zoo.registry import VARIANTS, Task
from zoo.registry.variants import active_quirks

from ..plain.config import Config
from .plugins import hooks, no_plain_form, plain_forms
from .program import PLAIN

if TYPE_CHECKING:
    from zoo.models import ZooConfig

DECODER_FIELDS = (
    *("vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
)
"""Sizes that a decoder may have for itself."""


def plain_config(config: ZooConfig, task: str) -> Config:
    """The settings of a model for a task, flat: each a number, a word, a switch or a list."""
    values: dict[str, Any] = config.to_dict()
    for field, registry in PART_FIELDS.items():
        values |= getattr(registry.get(getattr(config, field)), "options", {}) | values
    # The deeper stack continues the pattern of the other one.
    stacks = (config, config.decoder_config()) if config.stack == "encoder-decoder" else (config,)
    deeper = max(stacks, key=lambda one: one.num_hidden_layers)
    types = deeper.types_of_layers()
    windows = [kind == "sliding_attention" for kind in types]
    alpha, beta = deepnorm_constants(config)
    values |= {
        "task": task,
        "stack": config.stack,
        "num_labels": config.num_labels,
        "problem_type": config.problem_type or ("regression" if config.num_labels == 1 else None),
        "layer_types": types,
        "nope_layers": deeper.nope_layers,
        "all_layers_have_windows": all(windows),
        "some_layers_have_windows": any(windows) and not all(windows),
        "first_attention_layer": next(place for place, kind in enumerate(types) if kind != config.mixer_layer_type),
        "is_rotary": values["position"].startswith("rotary"),
        "has_local": values["position"] == "rotary-by-layer",
        "add_cross_attention": config.stack == "encoder-decoder",
        "deepnorm_alpha": alpha,
        "deepnorm_beta": beta,
        "position_hooks": hooks(config),
        "keeps_values": values["attention"] in ("value-residual", "kv-sharing"),
        "looks_up_values": values["attention"] == "value-embeddings",
        "has_experts": values["feed_forward"].startswith("moe"),
        "has_position_table": values["position"] in ("learned", "learned-unpadded", "t5", "disentangled"),
        "has_biases": has_biases(config, task),
        "generates": all(quirk.generates for quirk in active_quirks(config)),
        "mup_width_factor": width_factor(config),
        "decoder_changes": decoder_changes(config),
        "decoder_pad_token_id": config.pad_token_id
        if config.decoder_pad_token_id is None
        else config.decoder_pad_token_id,
    }
    values |= rope_settings(config) | by_layers(config)
    is_by_length = values["rope_type"] in ("dynamic", "longrope")  # frequencies depend on the length of the text
    values["position_skips_padding"] = values["position"] == "learned-unpadded" or is_by_length
    values["generates_with_cache"] = (
        task in ("causal-lm", "seq2seq-lm")
        and values["generates"]
        and not config.has_quirk("masks-from-token-ids")  # each step reads the whole text again
        and not is_by_length
    )
    balances = getattr(FEED_FORWARDS.get(config.feed_forward), "has_auxiliary_loss", False)
    values["balances_experts"] = bool(balances and values.get("output_router_logits"))
    if values["attention"] == "kv-sharing":
        values["kv_sources"] = SharedKeyValueAttention.sources(config)
    values |= {"encoder_attention_bias": False, "num_nextn_predict_layers": 0} | values
    values |= {"mtp_loss_weight": LOSS_WEIGHT, "num_streams": 0} | values
    for name, other in USUAL.items():
        if values.get(name, 0) is None:
            values[name] = values[other]
    for name in ("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"):
        values[name] = values.get(name) or config.num_attention_heads
    for name in ("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"):
        values[name] = values.get(name) or config.head_dim
    return Config(**values)


def has_biases(config: ZooConfig, task: str) -> bool:
    with torch.device("meta"):
        model = TASK_CLASSES[Task(task)][1](config)
    return any(name.endswith(".bias") for name, _ in model.named_parameters())


USUAL = {
    "moe_intermediate_size": "intermediate_size",
    "shared_expert_intermediate_size": "moe_intermediate_size",
    "latent_norm_eps": "layer_norm_eps",
    "lm_head_transform_act": "hidden_act",
}
"""Settings of parts that others fill."""


def by_layers(config: ZooConfig) -> dict[str, bool]:
    """Settings that describe the layers and the head of a variant's own code."""
    blueprint = transformer_of(config)
    build = blueprint.decoder_layer if config.stack == "decoder" else blueprint.encoder_layer
    with torch.device("meta"):
        layer = build(config, 0)
    residual = getattr(layer, "self_attn_residual", None)
    norms = config.norm_placement in ("sandwich", "res-post") or config.residual == "normalized"
    has_norm, has_dropout = (
        not isinstance(getattr(residual, name, nn.Identity()), nn.Identity) for name in ("norm_branch", "dropout")
    )
    return {
        "step_embeddings": hasattr(layer, "step_embedding"),
        "head_scale": hasattr(getattr(layer, "self_attn", None), "head_scale"),
        "attention_branch_norm": has_norm and not norms,
        "attention_branch_dropout": residual is None or has_dropout or config.has_quirk("dropout-on-the-skip"),
        "unit_weights": blueprint.head is UnitHead,
    }


def rope_settings(config: ZooConfig) -> dict[str, Any]:
    given = getattr(config, "rope_parameters", None) or {}
    full, local = given.get("full_attention", given), given.get("sliding_attention", {})
    kind, local_kind = full.get("rope_type", "default"), local.get("rope_type", "default")
    shares = {name: value for name, value in local.items() if name not in ("rope_type", "rope_theta")}
    part = full.get("partial_rotary_factor", 1.0)
    has_other_part = local and local.get("partial_rotary_factor", 1.0) != part
    is_scaled = local_kind != "default"
    if has_other_part or (is_scaled and (local_kind != kind or shares != {name: full.get(name) for name in shares})):
        raise no_plain_form("rope_parameters", given)
    factor, original = full.get("factor"), full.get("original_max_position_embeddings")
    if factor is None and original is not None:
        factor = config.max_position_embeddings / original
    attention_factor = 1.0
    if kind != "default":
        of_full = copy.copy(config)
        of_full.rope_parameters = full
        attention_factor = ROPE_INIT_FUNCTIONS[kind](of_full)[1]
    return {
        "rope_theta": full.get("rope_theta"),
        "rope_local_theta": local.get("rope_theta"),
        "rope_type": kind,
        "rope_local_type": local_kind,
        "rotary_dim": config.head_dim if kind == "proportional" else int(config.head_dim * part),
        "rope_turning_pairs": int(part * config.head_dim // 2),
        "rope_factor": 1.0 if factor is None else factor,
        "rope_original_length": original,
        "rope_attention_factor": attention_factor,
        "rope_beta_fast": full.get("beta_fast") or 32,
        "rope_beta_slow": full.get("beta_slow") or 1,
        "rope_truncate": given.get("truncate", True),
        **{f"rope_{name}_factor": full.get(f"{name}_factor") for name in ("low_freq", "high_freq", "short", "long")},
    }


def decoder_changes(config: ZooConfig) -> dict[str, Any]:
    """Sizes of the decoder of an encoder-decoder that are not its encoder's."""
    if config.stack != "encoder-decoder":
        return {}
    changes: dict[str, Any] = {}
    for one in (config, config.decoder_config()):
        alpha, beta = deepnorm_constants(one)
        values = {name: getattr(one, name) for name in DECODER_FIELDS}
        values |= {"deepnorm_alpha": alpha, "deepnorm_beta": beta}
        changes = {name: value for name, value in values.items() if value != changes.get(name)}
    return changes


def refuse_unwritten(config: ZooConfig) -> None:
    """Refuse what no plain code is about, by its name."""
    source = "".join(file.read_text(encoding="utf-8") for file in PLAIN.glob("*.py"))
    forms = plain_forms(config)
    for field, registry in PART_FIELDS.items():
        if not registry.origin(getattr(config, field)).built_in and field not in forms:
            raise no_plain_form(field, getattr(config, field))
    if getattr(config, "keep_dead", False):
        raise no_plain_form("keep_dead", True)
    for quirk in config.quirks:
        if f'"{quirk}"' not in source and quirk not in BY_SETTINGS:
            raise no_plain_form("quirks", quirk)
    variant = VARIANTS.get(config.variant)
    if variant.builder is not build_by_settings and not variant.origin.built_in:
        raise no_plain_form("variant", config.variant)


BY_SETTINGS = {
    *("torch-initialization", "masked-rows-are-uniform", "unscaled-initialization", "layers-share-weights"),
    "positions-in-other-rows",
}
"""Quirks that are other settings."""
