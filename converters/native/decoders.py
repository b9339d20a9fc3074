"""Common tables of decoders: heads, rotary positions, windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.models import ZooConfig
from zoo.models.fields import ANY, LAYER_TYPES
from zoo.registry import Task

from ..errors import NoCounterpartError
from ..key_map import Keys
from ..symmetries.base import State
from ..transforms import Transform, split_rows
from .common import absorbs_bias, without, without_classifier_bias
from .declared import Field, NativeFormat

HEADS: Mapping[str, Keys] = {  # Heads of most decoders
    "causal-lm": {"lm_head": "lm_head"},
    "sequence-classification": {"classifier": "score"},
    "token-classification": {"classifier": "score"},
    "feature-extraction": {},
}

PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
"""Weights that many classes store as one, by [`split_rows`][] or [`split`][]."""

GPT2_HEADS: Mapping[str, Keys] = {**HEADS, "token-classification": {"classifier": "classifier"}}
"""The same where the classifier of tokens has another name, as GPT-2's."""


def heads_by_group(config: ZooConfig) -> Transform:
    """Queries, keys and values of one projection: a group of query heads, then their key head and value head."""
    queries = config.num_attention_heads // config.num_key_value_heads
    return split_rows((queries, 1, 1), config.num_key_value_heads)


def width_of_heads(config: Any) -> int:
    """The width of a head, which a native configuration may leave out."""
    return getattr(config, "head_dim", None) or int(config.hidden_size // config.num_attention_heads)


HEAD_DIM = Field("head_dim", width_of_heads)


def whole_heads(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the rotary settings of a class that rotates heads as a whole, for any default scheme."""
    rope = dict(given)
    if rope.get("rope_type", "default") == "default" or rope.get("partial_rotary_factor") == 1.0:
        rope.pop("partial_rotary_factor", None)
    return rope


def rope_tables(rope_parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rotary settings, one for each kind of layer that has its own."""
    return [rope_parameters[kind] for kind in LAYER_TYPES if kind in rope_parameters] or [rope_parameters]


def rotation_by_layer(native: Any) -> dict[str, Any]:
    """Read rotary settings that are given for every kind of layer. There transformers 5.23 does not read `truncate`."""
    kinds = {kind: without(whole_heads(native.rope_parameters[kind]), "truncate") for kind in LAYER_TYPES}
    first, *others = (kinds[kind] for kind in sorted(set(native.layer_types)))
    return kinds if any(other != first for other in others) else first


def with_both_kinds(config: ZooConfig) -> dict[str, Any]:
    rope = config.rope_parameters
    return {kind: dict(rope.get(kind, rope)) for kind in LAYER_TYPES}


ROPE = Field(  # Rotary positions of whole heads
    "rope_parameters", lambda native: whole_heads(native.rope_parameters), lambda config: dict(config.rope_parameters)
)

WHOLE_ROPE = Field(  # The same in a variant that by itself rotates a part of each head
    "rope_parameters",
    lambda native: {"partial_rotary_factor": 1.0, **whole_heads(native.rope_parameters)},
    lambda config: whole_heads(config.rope_parameters),
)

ROPE_BY_LAYER: Mapping[str, str | Field] = {  # The same where a class has settings for every kind of layer
    "rope_parameters": Field("rope_parameters", rotation_by_layer, with_both_kinds),
    "position": Field(
        "rope_parameters",
        lambda native: "rotary" if len(rope_tables(rotation_by_layer(native))) == 1 else "rotary-by-layer",
        with_both_kinds,
        has=("rotary", "rotary-by-layer"),
    ),
}


def rotated_columns(config: Any) -> int:
    return int(width_of_heads(config) * config.rope_parameters.get("partial_rotary_factor", 1.0))


def part_of_heads(native: Any) -> dict[str, Any]:
    """Read the rotary settings of a class that rotates a part of each head."""
    if rotated_columns(native) % 2:
        raise NoCounterpartError(native.model_type, [f"{rotated_columns(native)} {ODD}"])
    return dict(native.rope_parameters)


ODD = "columns of each head are rotated, an odd number"

PARTIAL_ROPE = Field(  # Rotary positions of a leading part of each head
    "rope_parameters", part_of_heads, lambda config: {"partial_rotary_factor": 1.0, **config.rope_parameters}
)


def partial_rotation_obstacles(native: NativeFormat, config: ZooConfig) -> list[str]:
    """Rotations of a part of each head, and wavelengths by layer, that a class cannot express."""
    if getattr(config, "rope_parameters", None) is None:
        return []
    by_layer = native.fields.get("position") is ROPE_BY_LAYER["position"]
    if by_layer and not all(rope.get("truncate", True) for rope in rope_tables(config.rope_parameters)):
        return ["truncate=False is set in rope_parameters, which it does not read"]
    if all(rope.get("partial_rotary_factor", 1.0) == 1.0 for rope in rope_tables(config.rope_parameters)):
        return []
    if getattr(native.fields.get("rope_parameters"), "write", None) is not PARTIAL_ROPE.write:
        return ["a part of each head is rotated, it rotates heads as a whole"]
    return [f"{rotated_columns(config)} {ODD}"] if rotated_columns(config) % 2 else []


FIXED_ROPE: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
"""Rotary settings of a class that has none."""


def fixed_rope_obstacles(config: ZooConfig, *free: str) -> list[str]:
    """Rotary settings that such a class lacks, but for those that it has."""
    rope = dict(getattr(config, "rope_parameters", None) or FIXED_ROPE)
    plain = {**FIXED_ROPE, "partial_rotary_factor": 1.0}
    fits = all(name in free or plain.get(name, value) == value for name, value in rope.items())
    theta = plain["rope_theta"]
    return [] if fits else [f"rope_parameters={rope}, its wavelengths begin at {theta:g} and have no scaling"]


ONE_WINDOW: Mapping[str, str | Field] = {"sliding_window": "sliding_window"}  # One window in all layers, or none


def sliding_window(native: Any) -> int | None:
    return native.sliding_window if "sliding_attention" in native.layer_types else None


TYPES_OF_LAYERS = Field("layer_types", lambda native: list(native.layer_types), lambda config: config.types_of_layers())

WINDOWS_BY_LAYER: Mapping[str, str | Field] = {  # One window in some of the layers
    "sliding_window": Field(
        "sliding_window", sliding_window, lambda config: config.sliding_window or config.max_position_embeddings
    ),
    "layer_types": TYPES_OF_LAYERS,
}


def whole_text(layer_types: list[str]) -> list[bool] | None:
    """Which layers have no window, as `nope_layers` of a class in which those have no positions."""
    nope = [kind == "full_attention" for kind in layer_types]
    return nope if any(nope) else None


NOPE_BY_LAYER = Field(  # `nope_layers` of a class without positions in layers without a window
    "layer_types",
    lambda native: whole_text(native.layer_types),
    lambda config: config.types_of_layers(),
    has=lambda config: whole_text(config.types_of_layers()),
)


def token_classifier_dropout(native: Any) -> float:
    """The rate before a classifier of tokens: the first one that a configuration has, or 0.1."""
    rates = (getattr(native, name, None) for name in ("classifier_dropout", "hidden_dropout", "hidden_dropout_prob"))
    return next((rate for rate in rates if rate is not None), 0.1)


CLASSIFIER_DROPOUT = Field("classifier_dropout", token_classifier_dropout)


class DecoderFormat(NativeFormat, stack="decoder"):
    """A decoder that is all tables: pre-norm with a final norm by default."""

    heads = HEADS
    of_task: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        Task.SEQUENCE_CLASSIFICATION: dict(classifier_pooling="last", classifier_pooler_act=None, classifier_bias=ANY)
    }
    reasons: ClassVar[Mapping[str, str]] = {"lm_head_bias": "its output projection has no bias"}

    def has(self, task: str) -> dict[str, Any]:
        given = "final_norm" in {*self.always, *self.fields}
        return {**super().has(task), **({} if given else {"final_norm": True})}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration. Sequence classifiers have neither a bias nor dropout."""
        of_sequences = task == Task.SEQUENCE_CLASSIFICATION
        dropout = 0.0 if of_sequences else token_classifier_dropout(native)
        read = {"classifier_bias": not of_sequences, **super().read_config(native, task), "classifier_dropout": dropout}
        if "rope_parameters" in self.fields and getattr(native, "head_dim", None):  # by which angles are computed
            self.refuse(native, head_dim=read.get("head_dim") or native.hidden_size // native.num_attention_heads)
        return read

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        found = super().obstacles(config, state, task)
        if config.stack != self.stack:
            return found
        if task == Task.SEQUENCE_CLASSIFICATION:  # whose heads have no bias
            bias = state.get("classifier.bias")
            absorbed = self.biased_norms and bias is not None and absorbs_bias(config, state["classifier.weight"])
            if bias is not None and bias.any() and not absorbed:
                found.append("the classifier has a bias, its has none, and no norm with a bias is before it")
            if config.pad_token_id is None:
                found.append("pad_token_id is None, by which it finds the last token")
        found += self.rotary_obstacles(config)
        windows = {config.window_of_layer(layer) for layer in range(config.num_hidden_layers)}
        if len(windows) > 1 and "sliding_window" in self.fields and "layer_types" not in self.fields:
            found.append("its layers have different windows, here all have the same")
        return found

    rotary_obstacles = partial_rotation_obstacles

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Leave the sequence classifier's bias out, or in the last norm's."""
        state = super().write_weights(config, state, task)
        if task != Task.SEQUENCE_CLASSIFICATION:
            return state
        last_norm = f"{self.prefix}{self.body.get('norm')}.bias"
        return without_classifier_bias(state, last_norm) if last_norm in state else without(state, "score.bias")

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        found = super().notes(config, task)
        if task != Task.SEQUENCE_CLASSIFICATION:
            return found
        found.append(f"The class reads the last token that is not pad_token_id={config.pad_token_id}.")
        moved = "If the classifier had a bias, the last norm's holds it: the class's own has none."
        return [*found, moved] if config.norm == "layernorm" else found
