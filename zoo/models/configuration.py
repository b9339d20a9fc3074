"""The configuration of every model of the zoo."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from zoo.base.printed import Folded, Part, Table, Title, as_html

from .derived_defaults import fill, repeat_pattern, usual_layer_types
from .fields import GATED_ACTIVATIONS, Fields
from .hf_config_checks import in_the_zoos_words, validate_inherited, validate_rope_parameters, validate_rope_tables
from .parts import POSITIONS
from .stack_configuration import StackConfig
from .validation import LAYER_TYPES, validate, validate_options, validate_types

MODEL_TYPE = "transformer-zoo"


@in_the_zoos_words
@strict
class ZooConfig(StackConfig):
    """Configuration of a model of the zoo, in the field names of transformers.

    A configuration is complete: a saved one rebuilds its model even if a variant's defaults change later. Use
    [`zoo.config`][] to start from a variant's defaults; the defaults are those of a plain pre-norm Transformer. The
    settings are described in `zoo.models.fields.Fields`.

    Args:
        kwargs: Fields; `layer_types`, "full_attention", "sliding_attention" or the type of the mixer's layers, for
            every layer or a pattern repeated over them (all sliding if only a window is given, every other the mixer's
            if only that is); `rope_parameters` if the position part reads them; extra options of a plugin's variant or
            part; the fields of `PreTrainedConfig`.

    Raises:
        ZooError: If a value is not among its choices, or values contradict each other.
    """

    model_type = MODEL_TYPE
    # Before 5.20, transformers builds `ZooConfig()` to compare with, for which a bundle lacks the default parts.
    has_no_defaults_at_init = True
    keys_to_ignore_at_inference = ["past_key_values"]
    # transformers reads it to detect rotary settings per layer type.
    _rope_type_labels = LAYER_TYPES
    # TRL reads it of every model that is not one of transformers' own classes.
    auto_map: ClassVar[Mapping[str, str]] = MappingProxyType({})
    attribute_map = {"rms_norm_eps": "layer_norm_eps", "encoder_layers": "num_hidden_layers"}
    # The ordinary parts' plans, by which transformers detects that plans exist; a model plans by its actual parts.
    base_model_tp_plan = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }
    base_model_pp_plan = {
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill derived fields, then validate all once."""
        layer_types = kwargs.pop("layer_types", None)
        rope_parameters = kwargs.pop("rope_parameters", None)
        if kwargs.get("num_labels") is None:
            kwargs.pop("num_labels", None)
        validate_types(self)
        validate_inherited(self, kwargs)
        if self.feed_forward in GATED_ACTIVATIONS:
            self.feed_forward, self.hidden_act = "gated", GATED_ACTIVATIONS[self.feed_forward]
        validate(self, layer_types)

        fill(self)
        layer_types = layer_types or usual_layer_types(self)
        # Set only if a part uses them: transformers checks hasattr().
        if layer_types is not None:
            self.layer_types = repeat_pattern(layer_types, self.num_hidden_layers)
        part = POSITIONS.get(self.position)
        if part.uses_rope_parameters:
            validate_rope_parameters(rope_parameters, part.rope_layer_types)
            self.rope_parameters = rope_parameters or copy.deepcopy(part.default_rope_parameters)
        super().__post_init__(**kwargs)
        if part.rope_layer_types:
            # transformers 5.17 puts it next to the layer types, and then takes it for one.
            self.rope_parameters.pop("rope_theta", None)
        validate_options(self)
        if part.uses_rope_parameters:
            validate_rope_tables(self, part.rope_layer_types)

    def to_diff_dict(self) -> dict[str, Any]:
        """The dictionary that `save_pretrained` writes.

        Returns:
            Every field of this class, whatever its default, and the fields of `PreTrainedConfig` that were set.
        """
        own = {name: value for name, value in self.to_dict().items() if name in Fields.__annotations__}
        return {**super().to_diff_dict(), **own}

    def shown(self) -> Iterator[Part]:
        """Settings that differ from the plain configuration, and the others for a collapsed section."""
        yield Title(type(self).__name__, f"of a {self.stack} {self.variant}")
        plain = {field.name: field.default for field in dataclasses.fields(ZooConfig)}
        names = [*(name for name in plain if name in Fields.__annotations__), "layer_types", "rope_parameters"]
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        own = {name: value for name, value in values.items() if value not in (None, [], {}, plain.get(name))}
        rest = [(name, str(value)) for name, value in values.items() if name not in own]
        yield Table([(name, str(value)) for name, value in own.items()])
        yield Folded(f"{len(rest)} more, as in a plain configuration", (Table(rest),))

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return as_html(self.shown())

    def has_quirk(self, name: str) -> bool:
        """Whether a defect of the original is switched on.

        Args:
            name: The quirk's name, as the variant declares it.
        """
        return name in self.quirks
