"""The architectures of llama.cpp that models of the zoo can be, with the classes of transformers that lead to them.

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
from zoo.models.attention import attention_scaling
from zoo.models.feed_forwards.mixture import inner_size
from zoo.models.fields import ANY, SETTINGS
from zoo.models.mixers.delta_net import sizes
from zoo.models.parts import PART_FIELDS
from zoo.registry import Task

from ..errors import require
from ..native.declared import NATIVE, same
from ..native.decoders import rope_tables, rotated_columns, with_both_kinds
from ..symmetries.base import State, change, scale
from ..verification import ROUNDING, ends_of
from . import weights
from .tokenizer import ENDS

FILE = "model.gguf"

Metadata = Mapping[str, str | Callable[[ZooConfig], Any]]
"""Settings, or functions of a configuration, by what follows `add_` in the names of GGUFWriter's methods."""

SMOOTH, TABLED = ROUNDING, 2e-3
"""Largest deviation of log-probabilities, relative to the largest: llama.cpp has a half-precision table of GELU."""

SMALL_NORMS = 2e-4  # The same where it divides keys by their length, to which the class adds a small number

SILU = ("silu", "swish")

EXPRESSED = {  # Settings of the classes that files express; of others, the plain value alone
    *("attention_bias", "attention_out_bias", "attention_scale", "attn_logit_softcapping", "final_logit_softcapping"),
    *("head_dim", "mixer", "mlp_bias", "nope_layers", "num_key_value_heads", "parallel_residual", "position"),
    *("qk_norm", "sliding_window"),
}


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp."""

    name: str
    native: str  # The class of transformers with the weights and settings that it takes
    activations: tuple[str, ...] = SILU  # Names of the activation that it has
    tolerance: float = SMOOTH
    changes: tuple[weights.Change, ...] = ()  # Changes of the class's weights
    # Numbers that it reads in addition to those of every architecture
    metadata: Metadata = field(default_factory=dict, hash=False)
    windows: bool = False  # Whether all layers but every n-th may have windows
    positionless: int = 0  # Every how many layers one has no positions; 0 where all have them
    output: bool = False  # Whether it always has an output projection in addition to the embedding
    # Settings of the model or of its parts, with the only value that it has, or a function that gives it
    only: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Numbers of layers by which it takes a model for one that computes something else
    other_depths: tuple[int, ...] = ()
    # Further properties of a model that it lacks, a phrase each
    differs: Callable[[ZooConfig], list[str]] = field(default=lambda config: [])

    def obstacles(self, config: ZooConfig) -> list[str]:
        found = []
        for name, value in self.only.items():
            expected = value(config) if callable(value) else value
            if (given := setting(config, name)) != expected:
                found.append(f"{name}={given!r}, it has {expected!r}")
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
        if len(ends := ends_of(config)) > len(ENDS):
            found.append(f"eos_token_id={ends}, it has {len(ENDS)} ends at most")
        tables = rope_tables(config.rope_parameters) if config.position.startswith("rotary") else []
        kinds = {rope.get("rope_type", "default") for rope in tables} - {"default"}
        return [*found, *self.differs(config), *(f"rope_type={kind!r}, it has 'default'" for kind in sorted(kinds))]

    def numbers(self, config: ZooConfig) -> dict[str, Any]:
        """Everything that it reads of the settings, as `metadata`."""
        eps = "layer_norm_eps" if config.norm == "layernorm" else "layer_norm_rms_eps"
        found: dict[str, Any] = {
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
        for key, value in self.metadata.items():
            found[key] = setting(config, value) if isinstance(value, str) else value(config)
        return {key: value for key, value in found.items() if value is not None}

    def rewrite(self, state: State, config: ZooConfig) -> dict[str, Tensor]:
        """Turn the class's weights into llama.cpp's, still under the class's names."""
        found = dict(state)
        if not self.output and config.tie_word_embeddings:
            found.pop("lm_head.weight", None)
        for rewrite in self.changes:
            found = rewrite(found, config)
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
    return period([config.window_of_layer(layer) is not None for layer in range(config.num_hidden_layers)])


def layers_without_attention(config: ZooConfig) -> int | None:
    """Of how many layers the last has attention, and all others have none."""
    return period([kind != "full_attention" for kind in config.types_of_layers()])


def unlike_qwen3_next(config: ZooConfig) -> list[str]:
    """Find attention in other layers, and heads of two widths."""
    _, _, key_dim, value_dim = sizes(config)
    found = []
    if not layers_without_attention(config):
        found.append(f"layer_types={config.types_of_layers()}, it has attention in every n-th layer")
    if key_dim != value_dim:
        found.append(f"linear_value_head_dim={value_dim}, it has linear_key_head_dim={key_dim}")
    return found


SOFTCAPS: Metadata = same("attn_logit_softcapping", "final_logit_softcapping")
ROTATIONS: Metadata = {
    "rope_freq_base": lambda config: with_both_kinds(config)["full_attention"]["rope_theta"],
    "rope_freq_base_swa": lambda config: with_both_kinds(config)["sliding_attention"]["rope_theta"],
}
EXPERTS: Metadata = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": inner_size,
    "feed_forward_length": inner_size,
}
CONVOLUTIONS: Metadata = {
    "shortconv_l_cache": "conv_L_cache",
    "head_count_kv": lambda config: [  # llama.cpp knows layers of convolutions by having no key heads
        config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.types_of_layers()
    ],
}
DELTA_RULE: Metadata = {  # Qwen3-Next's experts and its gated delta rule, in the words of Mamba
    **EXPERTS,
    "expert_shared_feed_forward_length": lambda config: (
        setting(config, "shared_expert_intermediate_size") or inner_size(config)
    ),
    "full_attention_interval": layers_without_attention,
    "ssm_conv_kernel": "linear_conv_kernel_dim",
    "ssm_state_size": lambda config: sizes(config)[2],
    "ssm_group_count": lambda config: sizes(config)[0],
    "ssm_time_step_rank": lambda config: sizes(config)[1],
    "ssm_inner_size": lambda config: sizes(config)[1] * sizes(config)[3],
}

LATENT: Metadata = {
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "head_count_kv": lambda config: 1,
    "key_length": lambda config: setting(config, "kv_lora_rank") + config.head_dim,
    "value_length": "kv_lora_rank",
    "key_length_mla": lambda config: setting(config, "qk_nope_head_dim") + config.head_dim,
    "value_length_mla": "v_head_dim",
    "rope_dimension_count": "head_dim",
}
"""DeepSeek's latent vectors: llama.cpp takes them for one head of keys and values that all queries share."""

DENSE_LATENT: Metadata = {
    **LATENT,
    "leading_dense_block_count": "num_hidden_layers",
    "expert_feed_forward_length": "intermediate_size",
    "expert_shared_count": lambda config: 0,
}
LATENT_EXPERTS: Metadata = {
    **EXPERTS,
    **LATENT,
    "expert_group_count": lambda config: setting(config, "n_group") if setting(config, "n_group") > 1 else None,
    "expert_group_used_count": lambda config: setting(config, "topk_group") if setting(config, "n_group") > 1 else None,
    "feed_forward_length": "intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "n_shared_experts",
    "expert_gating_func": lambda config: require("gguf", "gguf").ExpertGatingFuncType.SIGMOID,
    "expert_weights_scale": lambda config: float(setting(config, "routed_scaling_factor")),
    "expert_weights_norm": "norm_topk_prob",
}


def fold_scale(projection: str) -> weights.Change:
    """Fold what scores are divided by into the queries, for llama.cpp divides by the root of a head's width."""

    def fold(state: dict[str, Tensor], config: ZooConfig) -> dict[str, Tensor]:
        return change(state, rf"\.{projection}\.", scale(attention_scaling(config) * config.head_dim**0.5))

    return fold


GELU: dict[str, Any] = {"activations": ("gelu_new", "gelu_pytorch_tanh"), "tolerance": TABLED}
JOINED = {**GELU, "changes": (weights.grouped("query_key_value"),)}
WHOLE_HEADS = {"head_dim": lambda config: config.hidden_size // config.num_attention_heads}  # As wide as the model
BIASED, BIASLESS, PARALLEL = {"attention_bias": True}, {"attention_bias": False}, {"parallel_residual": True}
TIED, SUMMED = {"tie_word_embeddings": True, **BIASLESS}, {"norm_topk_prob": True, **BIASLESS}
OLMO = {**BIASLESS, **WHOLE_HEADS}
DEEPSEEK: dict[str, Any] = {
    "changes": (weights.unpacked_latent, weights.stacked_experts),
    "only": {"position": "rotary-interleaved", **BIASLESS},
    "differs": lambda config: [] if setting(config, "q_lora_rank") else ["q_lora_rank=0, it has a positive number"],
    "other_depths": (26, 27),
}

ARCHITECTURES = (  # Those that are known to come out right, in the order in which they are tried
    Architecture("llama", "llama", changes=(weights.interleaved,)),
    Architecture("llama", "mixtral", changes=(weights.interleaved, weights.stacked_experts), metadata=EXPERTS),
    Architecture("qwen3", "qwen3", only=BIASLESS),
    Architecture("qwen3moe", "qwen3_moe", changes=(weights.stacked_experts,), metadata=EXPERTS, only=SUMMED),
    Architecture(
        "smollm3", "smollm3", changes=(weights.interleaved,), positionless=4, only={**BIASLESS, "mlp_bias": False}
    ),
    Architecture("olmo2", "olmo2", output=True, only=OLMO),
    Architecture("olmo2", "olmo3", windows=True, output=True, only=OLMO),
    Architecture("gemma", "gemma", changes=(weights.centred,), only=TIED, **GELU),
    Architecture(
        "gemma2",
        "gemma2",
        changes=(weights.centred, fold_scale("q_proj")),
        metadata=SOFTCAPS,
        windows=True,
        only=TIED,
        differs=lambda config: [f"{cap}=None, it has a number" for cap in SOFTCAPS if getattr(config, cap) is None],
        other_depths=(46,),
        **GELU,
    ),
    Architecture(
        "gemma3",
        "gemma3_text",
        changes=(weights.centred, fold_scale("q_norm")),
        metadata=ROTATIONS,
        windows=True,
        only=BIASLESS,
        other_depths=(62,),
        **GELU,
    ),
    Architecture("gpt2", "gpt2", changes=(weights.transposed,), **GELU),
    Architecture("falcon", "falcon", only={**PARALLEL, **BIASLESS}, **JOINED),
    Architecture("gptneox", "gpt_neox", metadata=same(*PARALLEL), output=True, only=BIASED, **JOINED),
    Architecture("bloom", "bloom", **JOINED),
    Architecture("phi2", "phi", output=True, **GELU),
    Architecture(
        "qwen3next",
        "qwen3_next",
        tolerance=SMALL_NORMS,
        changes=(weights.centred, weights.delta_projections, weights.squeezed, weights.stacked_experts),
        metadata=DELTA_RULE,
        only=SUMMED,
        differs=unlike_qwen3_next,
    ),
    Architecture(
        "lfm2", "lfm2", changes=(weights.squeezed,), metadata=CONVOLUTIONS, only={"conv_bias": False, **WHOLE_HEADS}
    ),
    Architecture(
        "gpt-oss",
        "gpt_oss",
        changes=(weights.clamped_experts,),
        metadata=EXPERTS,
        windows=True,
        output=True,
        only={**BIASED, "swiglu_alpha": 1.702, "swiglu_limit": 7.0},
    ),
    Architecture("deepseek2", "deepseek_v3", metadata=LATENT_EXPERTS, **DEEPSEEK),
    Architecture("deepseek2", "youtu", metadata=DENSE_LATENT, **DEEPSEEK),
)
