"""An architecture of llama.cpp: what it takes for granted, and the numbers that it reads.

llama.cpp knows a model by its architecture's name and a few numbers, and takes everything else for granted: the
activation, the layers that have windows or positions. A file of a model that has something else is read without an
error and computes something else, so that has to be found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig
from zoo.models.fields import ANY, SETTINGS
from zoo.models.parts import PART_FIELDS
from zoo.registry import Task

from ..native.base import NATIVE
from ..native.decoders import rope_tables, rotated_columns
from ..symmetries.base import State
from ..verification import ROUNDING
from .weights import Change

FILE = "model.gguf"


Metadata = Mapping[str, Any]

SMOOTH, TABLED = ROUNDING, 2e-3
"""Largest deviation of log-probabilities, relative to the largest: llama.cpp has a half-precision table of GELU."""

SMALL_NORMS = 2e-4
"""The same where it divides keys by their length, to which the class adds a small number."""

SILU = ("silu", "swish")

EXPRESSED = frozenset(
    {"attention_bias", "attention_scale", "attn_logit_softcapping", "final_logit_softcapping", "head_dim", "mixer"}
    | {"mlp_bias", "nope_layers", "num_key_value_heads", "parallel_residual", "position", "qk_norm", "sliding_window"}
)
"""Settings of the classes that files express; of others, the plain value alone."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp."""

    name: str
    native: str  # The class of transformers with the weights and settings that it takes
    activations: tuple[str, ...] = SILU  # Names of the activation that it has
    tolerance: float = SMOOTH
    changes: tuple[Change, ...] = ()  # Changes of the class's weights
    # Numbers that it reads in addition to those of every architecture
    metadata: Callable[[ZooConfig], Metadata] = field(default=lambda config: {})
    windows: bool = False  # Whether all layers but every n-th may have windows
    positionless: int = 0  # Every how many layers one has no positions; 0 where all have them
    output: bool = False  # Whether it always has an output projection in addition to the embedding
    # Settings of the model or of its parts, with the only value that it has
    only: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Numbers of layers by which it takes a model for one that computes something else
    other_depths: tuple[int, ...] = ()
    # Further properties of a model that it lacks, a phrase each
    differs: Callable[[ZooConfig], list[str]] = field(default=lambda config: [])

    def obstacles(self, config: ZooConfig) -> list[str]:
        """Find what the class has and llama.cpp lacks."""
        given = {name: setting(config, name) for name in self.only}
        found = [
            f"{name}={given[name]!r}, it has {value!r}" for name, value in self.only.items() if given[name] != value
        ]
        if config.hidden_act not in self.activations:
            found.append(f"hidden_act={config.hidden_act!r}, it has {self.activations[0]!r}")
        for name in sorted({*getattr(NATIVE.get(self.native), "fields", ())} & SETTINGS.keys() - EXPRESSED):
            value, plain = getattr(config, name), SETTINGS[name].plain_value(config)
            if SETTINGS[name].is_computed(Task.CAUSAL_LM) and plain is not ANY and value != plain:
                found.append(f"{name}={value!r}, it has {plain!r}")
        depth = config.num_hidden_layers
        every = window_period(config)
        if every != 1 and not (self.windows and every):
            has = "windows in all layers but every n-th" if self.windows else "no windows"
            found.append(f"sliding_window={config.sliding_window} in its layers, it has {has}")
        nope = [bool(self.positionless) and not (layer + 1) % self.positionless for layer in range(depth)]
        if self.positionless and list(config.nope_layers or []) != nope:
            found.append(f"nope_layers={config.nope_layers}, it has one layer in {self.positionless} without positions")
        if depth in self.other_depths:
            found.append(f"num_hidden_layers={depth}, by which it takes it for another model")
        return found + self.differs(config) + scaled_rotation(config)

    def numbers(self, config: ZooConfig) -> dict[str, Any]:
        """Everything that it reads of the settings, by what follows `add_` in the names of GGUFWriter's methods."""
        eps = "layer_norm_eps" if config.norm == "layernorm" else "layer_norm_rms_eps"
        found = {
            "context_length": config.max_position_embeddings,
            "embedding_length": config.hidden_size,
            "feed_forward_length": config.intermediate_size,
            "block_count": config.num_hidden_layers,
            "head_count": config.num_attention_heads,
            "head_count_kv": config.num_key_value_heads,
            "key_length": config.head_dim,
            "value_length": config.head_dim,
            "vocab_size": config.vocab_size,
            eps: config.layer_norm_eps,
        }
        if config.position.startswith("rotary"):
            tables = rope_tables(config.rope_parameters)
            found |= {"rope_freq_base": tables[0]["rope_theta"]}
            if len(tables) == 1:
                found |= {"rope_dimension_count": rotated_columns(config)}
        if self.windows:
            found["sliding_window"] = config.sliding_window or config.max_position_embeddings
            found["sliding_window_pattern"] = window_period(config)
        return {**found, **self.metadata(config)}

    def rewrite(self, state: State, config: ZooConfig) -> dict[str, Tensor]:
        """Turn the class's weights into llama.cpp's, still under the class's names."""
        found = dict(state)
        if not self.output and config.tie_word_embeddings:
            found.pop("lm_head.weight", None)
        for change in self.changes:
            found = change(found, config)
        return found


def setting(config: ZooConfig, name: str) -> Any:
    """A setting of a model, or of one of its parts, which a configuration has only where it was given."""
    for field_name, parts in PART_FIELDS.items():
        options = getattr(parts.get(getattr(config, field_name)), "options", {})
        if name in options:
            return getattr(config, name, options[name])
    return getattr(config, name)


def period(flags: list[bool]) -> int | None:
    """Of how many layers the last has no flag, and all others have one."""
    sizes = range(1, len(flags) + 2)
    return next((size for size in sizes if flags == [(layer + 1) % size > 0 for layer in range(len(flags))]), None)


def window_period(config: ZooConfig) -> int | None:
    """The same of layers with a window."""
    return period([config.window_of_layer(layer) is not None for layer in range(config.num_hidden_layers)])


def scaled_rotation(config: ZooConfig) -> list[str]:
    """Scalings of rotary positions that the file cannot express."""
    if not config.position.startswith("rotary"):
        return []
    kinds = {rope.get("rope_type", "default") for rope in rope_tables(config.rope_parameters)} - {"default"}
    return [f"rope_type={kind!r}, it has 'default'" for kind in sorted(kinds)]
