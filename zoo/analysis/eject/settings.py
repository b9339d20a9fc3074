"""Settings of plain models, out of a configuration of the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.models.parts import PART_FIELDS
from zoo.models.residual import deepnorm_constants
from zoo.registry import VARIANTS

from ..plain.config import Config
from .program import PLAIN
from .specialising import no_plain_form

if TYPE_CHECKING:
    from zoo.models import ZooConfig

UNWRITTEN: dict[str, Any] = {
    "classifier_positions": None,
    "type_vocab_size": None,
    "keep_dead": False,
    "encoder_attention_bias": False,
    "num_nextn_predict_layers": 0,
    "output_router_logits": False,
    "latent_norm_eps": None,
    "n_group": 1,
}
"""Settings without a plain form, unless they have these values."""

DECODER_FIELDS = (
    "vocab_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
)
"""Sizes that a decoder may have for itself."""


def plain_config(config: ZooConfig, task: str) -> Config:
    """The settings of a model, flat: each a number, a word, a switch or a list.

    Args:
        task: Name of a task of the zoo.
    """
    values: dict[str, Any] = {}
    for field, registry in PART_FIELDS.items():
        values |= getattr(registry.get(getattr(config, field)), "options", {})
    values |= config.to_dict()
    values |= {field: registry.canonical(getattr(config, field)) for field, registry in PART_FIELDS.items()}
    types = config.types_of_layers()
    windows = [kind == "sliding_attention" for kind in types]
    rope = getattr(config, "rope_parameters", None) or {}
    alpha, beta = deepnorm_constants(config)
    values |= {
        "task": task,
        "stack": config.stack,
        "num_labels": config.num_labels,
        "layer_types": types,
        "all_layers_have_windows": all(windows),
        "some_layers_have_windows": any(windows) and not all(windows),
        "is_rotary": values["position"].startswith("rotary"),
        "add_cross_attention": config.stack == "encoder-decoder",
        "rope_theta": rope.get("rope_theta", rope.get("full_attention", {}).get("rope_theta")),
        "rope_local_theta": rope.get("sliding_attention", {}).get("rope_theta"),
        "rotary_dim": int(config.head_dim * rope.get("partial_rotary_factor", 1.0)),
        "deepnorm_alpha": alpha,
        "deepnorm_beta": beta,
    }
    if values.get("moe_intermediate_size", 0) is None:
        values["moe_intermediate_size"] = config.intermediate_size
    if values.get("shared_expert_intermediate_size", 0) is None:
        values["shared_expert_intermediate_size"] = values["moe_intermediate_size"]
    for name in ("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"):
        values[name] = values.get(name) or config.num_attention_heads
    for name in ("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"):
        values[name] = values.get(name) or config.head_dim
    return Config(**values)


def decoder_changes(config: ZooConfig) -> dict[str, Any]:
    """Sizes of the decoder of an encoder-decoder that are not its encoder's."""
    if config.stack != "encoder-decoder":
        return {}
    decoder = config.decoder_config()
    return {name: getattr(decoder, name) for name in DECODER_FIELDS if getattr(decoder, name) != getattr(config, name)}


def refuse_unwritten(config: ZooConfig) -> None:
    """Refuse what no plain code is about, by its name."""
    source = "".join(file.read_text(encoding="utf-8") for file in PLAIN.glob("*.py"))
    for field, registry in PART_FIELDS.items():
        origin = registry.origin(getattr(config, field))
        if not origin.built_in:
            raise no_plain_form(field, getattr(config, field))
    for name, usual in UNWRITTEN.items():
        if getattr(config, name, usual) not in (usual, None):
            raise no_plain_form(name, getattr(config, name))
    for quirk in config.quirks:
        if f'"{quirk}"' not in source and quirk not in BY_SETTINGS:
            raise no_plain_form("quirks", quirk)
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(part for part in rope.values() if isinstance(part, dict))):
        if one.get("rope_type", "default") != "default":
            raise no_plain_form("rope_type", one["rope_type"])
    builder = VARIANTS.get(config.variant).builder
    if builder.__module__.startswith("zoo.variants.builders") and config.variant not in BUILDERS:
        raise no_plain_form("variant", config.variant)


BY_SETTINGS = {"torch-initialization", "masked-rows-are-uniform"}
"""Quirks that are other settings."""

BUILDERS = {"vanilla", "d2l-style", "nlpt-encoder", "odom-style", "explicando", "ngpt", "normformer", "universal"}
"""Variants with code of their own that the plain code has."""
