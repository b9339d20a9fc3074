"""The configuration of every model of the zoo: its checks, what follows from what, and its views of one stack."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from zoo.base.errors import CheckpointError, ConfigError, FormatVersionError, UnknownNameError, enumerate_names
from zoo.base.formats import CONFIGURATION, WRITTEN_BY, is_newer, upgrade, zoo_version
from zoo.base.printed import Folded, Part, Table, Title, as_html
from zoo.registry import VARIANTS, Registry

from .fields import GATED_ACTIVATIONS, LAYER_TYPES, SETTINGS, Fields
from .parts import ATTENTIONS, MIXERS, NAMED_FIELDS, POSITIONS
from .validation import (
    in_the_zoos_words,
    validate,
    validate_inherited,
    validate_options,
    validate_rope_parameters,
    validate_rope_tables,
    validate_types,
    with_given,
)

if TYPE_CHECKING:
    from typing import Self

MODEL_TYPE = "transformer-zoo"

FOREIGN = ("attn_implementation", "experts_implementation", "transformers_weights")
"""Keys that transformers never writes into a configuration, but obeys there: to read other weights, to fetch code."""

WITHOUT_FIELD = (
    *("model_type", "auto_map", "name_or_path", "_name_or_path", "num_labels", "output_attentions"),
    *("rope_scaling", "torch_dtype", "per_layer_config"),
)
"""Keys of saved configurations of transformers that are no fields of the class but set by its properties."""

FILLED = ("layer_types", "rope_parameters")  # Settings that only some configurations have

OWN_KEYS = (CONFIGURATION.key, WRITTEN_BY)

DEEPEST = 50  # Levels of a configuration, which what reads and copies it goes down one by one

Kind = TypeVar("Kind")


@in_the_zoos_words
@strict
class ZooConfig(Fields, PreTrainedConfig):
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
    keys_to_ignore_at_inference = ["past_key_values", "cache"]
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
        stamp = {key: kwargs.pop(key) for key in OWN_KEYS if key in kwargs}
        if stamp:
            CONFIGURATION.check(stamp, "this", stamp.get(WRITTEN_BY))
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
        # Set only if a part uses them: transformers checks hasattr(). By default every other layer is the mixer's.
        if layer_types is not None or self.mixer_layer_type is not None:
            usual = "full_attention" if self.sliding_window is None else "sliding_attention"
            self.layer_types = repeat_pattern(layer_types or [self.mixer_layer_type, usual], self.num_hidden_layers)
        part = POSITIONS.get(self.position)
        if part.uses_rope_parameters:
            validate_rope_parameters(rope_parameters, part.rope_layer_types)
            self.rope_parameters = rope_parameters or copy.deepcopy(part.default_rope_parameters)
        super().__post_init__(**kwargs)
        if part.rope_layer_types:
            # transformers 5.17, with which bundles may be read, puts it next to the layer types and takes it for one.
            self.rope_parameters.pop("rope_theta", None)
        validate_options(self)
        if part.uses_rope_parameters:
            validate_rope_tables(self, part.rope_layer_types)

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration as transformers does, but for one that is nested too deeply to be read."""
        try:
            return super().get_config_dict(*args, **kwargs)
        except RecursionError as error:
            raise CheckpointError(f"the configuration of {args[0]} is nested too deeply to be one") from error

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Make a configuration of what was saved. Arguments win over it, and are checked as it is."""
        if depth_of(config_dict) > DEEPEST:
            raise ConfigError(f"it is nested more than {DEEPEST} levels deep, so it is no configuration")
        settings = {*(field.name for field in fields(cls)), *WITHOUT_FIELD, *cls.attribute_map}
        for name, value in config_dict.items():
            if (name in FOREIGN and value is not None) or (
                name not in settings and (name.startswith("_") or hasattr(cls, name))  # a method or a private part
            ):
                raise ConfigError(f"{name}={value!r} was found in a saved configuration, which cannot have that")
        named = config_dict.get("auto_map") or {}
        if not (isinstance(named, dict) and all(isinstance(value, (str, list)) for value in named.values())):
            raise ConfigError(f"auto_map={named!r} was found; it must be an object of names of classes")
        saved = {name: value for name, value in config_dict.items() if name not in FOREIGN}
        returns_unused = kwargs.pop("return_unused_kwargs", False)
        files = {"variant": kwargs.pop("variant")} if "variant" in kwargs else {}  # of weights, model.fp16...
        saved = with_given(saved, kwargs) if kwargs else saved
        CONFIGURATION.check(saved, CONFIGURATION.place, written_by := saved.get(WRITTEN_BY))
        make = partial(super().from_dict, saved, return_unused_kwargs=True, **kwargs)
        config, unused = make_newer(make, written_by, saved.keys() - settings) if is_newer(written_by) else make()
        return (config, {**unused, **files}) if returns_unused else config

    def to_diff_dict(self) -> dict[str, Any]:
        """Make the dictionary that is saved: all own fields, `PreTrainedConfig`'s that were set, and versions."""
        own = {name: value for name, value in self.to_dict().items() if name in Fields.__annotations__}
        written_by = {WRITTEN_BY: zoo_version()} if zoo_version() else {}
        return {**super().to_diff_dict(), **own, **CONFIGURATION.stamp, **written_by}

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
        return as_html(self.shown())

    def has_quirk(self, name: str) -> bool:
        """Whether a quirk, as the variant names it, is switched on."""
        return name in self.quirks

    def named_parts(self) -> Iterator[tuple[str, Registry[Any], str]]:
        """Everything registered that it names: field, registry and name."""
        for field, registry in NAMED_FIELDS.items():
            if (name := getattr(self, field)) is not None:
                yield field, registry, name

    @property
    def stack(self) -> str:
        """Which stacks the model has: "encoder", "decoder" or "encoder-decoder"."""
        if self.is_encoder_decoder and not self.is_decoder:
            return "encoder-decoder"
        return "decoder" if self.is_decoder else "encoder"

    def window_of_layer(self, layer_idx: int) -> int | None:
        """The sliding window of one layer."""
        return self.sliding_window if self.types_of_layers()[layer_idx] == "sliding_attention" else None

    def types_of_layers(self) -> list[str]:
        """The kind of self-attention mask of every layer, in transformers' words."""
        types: list[str] | None = getattr(self, "layer_types", None)
        if types is not None:
            return types[: self.num_hidden_layers]  # generation lowers the number for an early exit
        return ["full_attention" if self.sliding_window is None else "sliding_attention"] * self.num_hidden_layers

    def validate_layer_type(self) -> None:
        """Leave names to the check of all settings: transformers knows fewer."""

    @property
    def mixer_layer_type(self) -> str | None:
        """The type of the layers without attention, None where all have attention."""
        return MIXERS.get(self.mixer).layer_type

    @property
    def prediction_depth(self) -> int:
        """Number of tokens after the next one that are predicted in training."""
        return int(getattr(self, "num_nextn_predict_layers", 0))

    @property
    def kv_sharing_modes(self) -> list[str | None] | None:
        """Which layers read keys and values that an earlier one keeps, by which transformers makes caches."""
        return ATTENTIONS.get(self.attention).kv_sharing_modes(self)

    def placed_types_of_layers(self) -> list[str | None]:
        """Which position terms every layer reads."""
        types, unplaced = self.types_of_layers(), self.mixer_layer_type
        return [
            None if nope or kind == unplaced else kind
            for kind, nope in zip(types, self.nope_layers or [False] * len(types), strict=False)
        ]

    @property
    def embedding_width(self) -> int:
        """Width of the vectors of tokens, of their types and of learned positions."""
        return self.embedding_size or self.hidden_size

    def embedding_config(self) -> Self:
        """The configuration of what embeds tokens."""
        embeds = copy.copy(self)
        embeds.hidden_size, embeds.layer_norm_eps = self.embedding_size or self.hidden_size, self.embedding_norm_eps
        return embeds

    def decoder_config(self) -> Self:
        """The configuration of an encoder-decoder's decoder: a copy in which the plain fields describe it."""
        decoder = copy.deepcopy(self)
        grouped = self.num_key_value_heads != self.num_attention_heads
        own_head_dim = self.head_dim * self.num_attention_heads != self.hidden_size
        decoder.vocab_size = self.vocab_size if self.share_encoder_decoder_embeddings else self.decoder_vocab_size
        decoder.num_hidden_layers = self.decoder_layers
        decoder.num_attention_heads = self.decoder_attention_heads
        decoder.num_key_value_heads = self.num_key_value_heads if grouped else self.decoder_attention_heads
        decoder.head_dim = self.head_dim if own_head_dim else self.hidden_size // self.decoder_attention_heads
        decoder.intermediate_size = self.decoder_intermediate_size
        if self.decoder_pad_token_id is not None:
            decoder.pad_token_id = self.decoder_pad_token_id
        if hasattr(self, "layer_types"):
            decoder.layer_types = repeat_pattern(self.layer_types, self.decoder_layers)
        if self.nope_layers is not None:
            decoder.nope_layers = repeat_pattern(self.nope_layers, self.decoder_layers)
        decoder.is_decoder = decoder.add_cross_attention = True
        return decoder

    def of_stack(self, stack: str) -> Self:
        """The configuration of the same weights as another stack, this one if it describes that stack.

        An encoder-decoder's with `is_decoder` describes the decoder alone.
        """
        if self.stack == stack:
            return self
        other = copy.deepcopy(self)
        other.is_decoder = stack == "decoder"
        return other

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:
        """The configuration that transformers sizes a cache by: the decoder's view of an encoder-decoder."""
        return self.decoder_config() if decoder and not encoder and self.stack == "encoder-decoder" else self


def depth_of(value: Any) -> int:
    """How deeply data is nested, as far as it matters."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        nested = ([*outer.values()] if isinstance(outer, dict) else outer for outer in level)
        level = [inner for values in nested if isinstance(values, (dict, list, tuple)) for inner in values]
        depth += 1
    return depth


def make_newer(make: Callable[[], Any], written_by: Any, others: set[str]) -> Any:
    """Make a configuration that a newer zoo wrote; `others` are the names in it that are no fields."""
    later = f"written by transformer-zoo {written_by}; {upgrade(written_by)}"
    try:
        config, unused = make()
    except UnknownNameError as error:
        raise FormatVersionError(f"{error}; the saved configuration was {later}") from error
    if new := sorted(others - known_options(config)):
        raise FormatVersionError(
            f"the saved configuration has unknown settings: {enumerate_names(new)}; it was {later}"
        )
    return config, unused


def known_options(config: ZooConfig) -> set[str]:
    """Names in a saved configuration that are no fields: transformers' own, and options of its variant and parts."""
    named = [registry.get(name) for _, registry, name in config.named_parts()]
    options = {name for one in named for name in (*getattr(one, "options", ()), *getattr(one, "defaults", ()))}
    return {*PreTrainedConfig().to_dict(), *FILLED, *OWN_KEYS, *options}


def fill(config: ZooConfig) -> None:
    """Fill the settings of a valid configuration that follow from others."""
    config.quirks = list(VARIANTS.get(config.variant).check_quirks(config.quirks)) if config.quirks else []
    config.providers = {}
    for field, registry, name in [*config.named_parts()]:
        entry = registry.entry(name)
        setattr(config, field, entry.name)
        if not entry.origin.built_in and entry.origin.distribution:
            config.providers[field] = entry.origin.distribution
    for name, one in SETTINGS.items():
        if getattr(config, name) is None and (one.usual or (one.decoder_of and config.stack == "encoder-decoder")):
            setattr(config, name, one.usual_value(config))
    if config.nope_layers is not None:
        nope = repeat_pattern(config.nope_layers, config.num_hidden_layers)
        config.nope_layers = nope if any(nope) else None


def repeat_pattern(pattern: list[Kind], length: int) -> list[Kind]:
    return [pattern[i % len(pattern)] for i in range(length)]
