"""The architectures of llama.cpp that models of the zoo can be, beside the classes of transformers that lead to them.

llama.cpp knows a model by its architecture's name and a few numbers, and takes everything else for granted: which
activation there is, which layers have windows or positions. Where a model has something else, it computes something
else and says nothing, so that has to be found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig
from zoo.models.attention import attention_scaling

from ..native.decoders import rope_tables, rotated_columns
from ..symmetries.base import State
from ..verification import ROUNDING
from .weights import Change, centred, grouped, interleaved, stacked_experts, transposed

Metadata = Mapping[str, Any]

SMOOTH, TABLED = ROUNDING, 2e-3
"""How far log-probabilities may be from ours, beside the largest: of GELU, llama.cpp has a table of half precision."""

TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")
SILU = ("silu", "swish")


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp.

    Args:
        name: What llama.cpp calls it.
        native: The class of transformers whose weights and settings it takes.
        activations: Names of the activation that it has.
        tolerance: How far log-probabilities may be from ours, beside the largest.
        changes: What becomes of the class's weights.
        metadata: The numbers that it reads beside those of every architecture.
        windows: Whether its layers may have windows: all but the last of every so many.
        positionless: Of its layers, one of so many has no positions; 0 where all have them.
        output: Whether it has an output projection beside the embedding: "optional", "required" or "none".
        biased: Whether it takes no projections without biases.
        other_scales: Numbers of layers by which it takes a model for one that scales attention otherwise.
    """

    name: str
    native: str
    activations: tuple[str, ...] = SILU
    tolerance: float = SMOOTH
    changes: tuple[Change, ...] = ()
    metadata: Callable[[ZooConfig], Metadata] = field(default=lambda config: {})
    windows: bool = False
    positionless: int = 0
    output: str = "optional"
    biased: bool = False
    other_scales: tuple[int, ...] = ()

    def obstacles(self, config: ZooConfig) -> list[str]:
        """Find what the class has and llama.cpp lacks.

        Args:
            config: Settings that the class expresses.
        """
        found = []
        if config.hidden_act not in self.activations:
            found.append(f"hidden_act={config.hidden_act!r}, it has {self.activations[0]!r}")
        depth = config.num_hidden_layers
        if period(config) != 1 and not (self.windows and period(config)):
            has = "windows in all layers but the last of every so many" if self.windows else "no windows"
            found.append(f"sliding_window={config.sliding_window} in its layers, it has {has}")
        nope = [bool(self.positionless) and not (layer + 1) % self.positionless for layer in range(depth)]
        if self.positionless and list(config.nope_layers or []) != nope:
            found.append(f"nope_layers={config.nope_layers}, it has one layer in {self.positionless} without positions")
        if self.biased and not config.attention_bias:
            found.append("attention_bias=False, it has True")
        if self.output == "none" and not config.tie_word_embeddings:
            found.append("tie_word_embeddings=False, it has True")
        if depth in self.other_scales:
            found.append(f"num_hidden_layers={depth}, by which it takes it for a model that scales scores otherwise")
        if self.native == "gemma2" and None in (config.attn_logit_softcapping, config.final_logit_softcapping):
            found.append("attn_logit_softcapping or final_logit_softcapping is None, it has a number")
        if self.native == "gemma3_text" and config.attn_logit_softcapping is not None:
            found.append(f"attn_logit_softcapping={config.attn_logit_softcapping}, it has None")
        return found + scaled_rotation(config)

    def numbers(self, config: ZooConfig) -> dict[str, Any]:
        """Everything that it reads of the settings.

        Returns:
            Values by what follows `add_` in the names of GGUFWriter's methods.
        """
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
            found["sliding_window_pattern"] = period(config)
        return {**found, **self.metadata(config)}

    def rewrite(self, state: State, config: ZooConfig) -> dict[str, Tensor]:
        """Turn the class's weights into llama.cpp's, still under the class's names.

        Args:
            state: The class's weights.
        """
        found = dict(state)
        if self.output != "required" and config.tie_word_embeddings:
            found.pop("lm_head.weight", None)
        for change in self.changes:
            found = change(found, config)
        return found


def period(config: ZooConfig) -> int | None:
    """Of how many layers the last has no window, and all others have one.

    Returns:
        The number: 1 where no layer has a window, more than there are layers where all have; None for other patterns.
    """
    layers = range(config.num_hidden_layers)
    slides = [config.window_of_layer(layer) is not None for layer in layers]
    sizes = range(1, config.num_hidden_layers + 2)
    return next((size for size in sizes if slides == [(layer + 1) % size > 0 for layer in layers]), None)


def scaled_rotation(config: ZooConfig) -> list[str]:
    """Which scalings of rotary positions the file would not say."""
    if not config.position.startswith("rotary"):
        return []
    kinds = {rope.get("rope_type", "default") for rope in rope_tables(config.rope_parameters)} - {"default"}
    return [f"rope_type={kind!r}, it has 'default'" for kind in sorted(kinds)]


def softcaps(config: ZooConfig) -> Metadata:
    """Gemma 2's bounds on scores and logits."""
    return {
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
    }


def two_rotations(config: ZooConfig) -> Metadata:
    """Gemma 3's bases: of layers that see everything, and of those with a window."""
    rope = config.rope_parameters
    full, sliding = (rope.get(kind, rope) for kind in ("full_attention", "sliding_attention"))
    return {"rope_freq_base": full["rope_theta"], "rope_freq_base_swa": sliding["rope_theta"]}


def experts(config: ZooConfig) -> Metadata:
    """How many experts there are, and how wide one is."""
    from zoo.models import MixtureOfExperts
    from zoo.models.feed_forwards.mixture import inner_size
    from zoo.models.parts import option

    return {
        "expert_count": option(config, MixtureOfExperts, "num_experts"),
        "expert_used_count": option(config, MixtureOfExperts, "num_experts_per_tok"),
        "expert_feed_forward_length": inner_size(config),
        "feed_forward_length": inner_size(config),
    }


def fold_scale(projection: str) -> Change:
    """Fold what scores are divided by into the queries, for llama.cpp divides by the root of a head's width."""

    def change(state: dict[str, Tensor], config: ZooConfig) -> dict[str, Tensor]:
        factor = attention_scaling(config) * config.head_dim**0.5
        return {name: value * factor if f".{projection}." in name else value for name, value in state.items()}

    return change


GEMMA: dict[str, Any] = {"activations": TANH_GELU, "tolerance": TABLED}

ARCHITECTURES = (
    Architecture("llama", "llama", changes=(interleaved,)),
    Architecture("llama", "mixtral", changes=(interleaved, stacked_experts), metadata=experts),
    Architecture("qwen3", "qwen3"),
    Architecture("qwen3moe", "qwen3_moe", changes=(stacked_experts,), metadata=experts),
    Architecture("smollm3", "smollm3", changes=(interleaved,), positionless=4),
    Architecture("olmo2", "olmo2", output="required"),
    Architecture("olmo2", "olmo3", windows=True, output="required"),
    Architecture("gemma", "gemma", changes=(centred,), output="none", **GEMMA),
    Architecture(
        "gemma2",
        "gemma2",
        changes=(centred, fold_scale("q_proj")),
        metadata=softcaps,
        windows=True,
        output="none",
        other_scales=(46,),
        **GEMMA,
    ),
    Architecture(
        "gemma3",
        "gemma3_text",
        changes=(centred, fold_scale("q_norm")),
        metadata=two_rotations,
        windows=True,
        other_scales=(62,),
        **GEMMA,
    ),
    Architecture("gpt2", "gpt2", TANH_GELU, TABLED, changes=(transposed,)),
    Architecture("falcon", "falcon", TANH_GELU, TABLED, changes=(grouped("query_key_value"),)),
    Architecture(
        "gptneox",
        "gpt_neox",
        TANH_GELU,
        TABLED,
        changes=(grouped("query_key_value"),),
        metadata=lambda config: {"parallel_residual": config.parallel_residual},
        output="required",
        biased=True,
    ),
    Architecture("bloom", "bloom", TANH_GELU, TABLED, changes=(grouped("query_key_value"),)),
    Architecture("phi2", "phi", TANH_GELU, TABLED, output="required"),
)
"""Those that are known to come out right, in the order in which they are tried."""
