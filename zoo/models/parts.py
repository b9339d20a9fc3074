"""The registries of interchangeable parts.

A part registered here, by the library or by a plugin, is available to every variant by its name:
`zoo.build("pre-norm", position="my-rope")`. The built-in ones are in a table of this file, which imports no
torch: a part is imported when a model is built with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zoo.base.errors import InvalidChoiceError
from zoo.registry import VARIANTS, Registry, parse_name

if TYPE_CHECKING:
    from torch import nn

    from .attention import Attention
    from .configuration import ZooConfig
    from .embedding import Position
    from .residual import Residual

POSITIONS: Registry[type[Position]] = Registry("position")
"""Position encodings: subclasses of [`zoo.models.embedding.Position`][]."""

NORMS: Registry[Callable[[int, ZooConfig], nn.Module]] = Registry("norm")
"""Normalisations: called with the normalised width and the configuration."""

FEED_FORWARDS: Registry[Callable[[ZooConfig], nn.Module]] = Registry("feed-forward")
"""Feed-forward sublayers: called with the configuration, mapping hidden states to hidden states."""

ATTENTIONS: Registry[type[Attention]] = Registry("attention")
"""Attention sublayers: subclasses of [`zoo.models.attention.Attention`][]."""

MIXERS: Registry[Any] = Registry("mixer")
"""Token mixers of layers without attention: subclasses of [`zoo.models.mixers.base.Mixer`][]."""

RESIDUALS: Registry[type[Residual]] = Registry("residual")
"""How sublayers join the residual stream: subclasses of [`zoo.models.residual.Residual`][]."""

INITIALIZERS: Registry[Callable[[Any, ZooConfig], None]] = Registry("initializer")
"""Initialisation schemes: called with every module of a new model, children before parents, and the configuration."""

ACTIVATIONS: Registry[Callable[[], nn.Module]] = Registry("activation", error=InvalidChoiceError)
"""Activations: called without arguments."""

PART_FIELDS: dict[str, Registry[Any]] = {
    "position": POSITIONS,
    "norm": NORMS,
    "feed_forward": FEED_FORWARDS,
    "attention": ATTENTIONS,
    "mixer": MIXERS,
    "residual": RESIDUALS,
    "initializer": INITIALIZERS,
    "hidden_act": ACTIVATIONS,
}
"""Registry of each configuration field that names a part."""

BUILT_IN: dict[str, dict[str, str]] = {
    "position": {
        "none": "models.embedding:Position",
        "learned": "models.embedding:LearnedPosition",
        "learned-unpadded": "models.embedding:LearnedUnpaddedPosition",
        "alibi": "models.position_bias:AlibiPosition",
        "t5, relative-buckets": "models.position_bias:RelativeBucketPosition",
        "disentangled": "models.attentions.disentangled:DisentangledPosition",
        "rotary-by-layer": "models.rotary:RotaryByLayerPosition",
        "rotary, rope": "models.rotary:RotaryPosition",
        "rotary-interleaved": "models.rotary:InterleavedRotaryPosition",
        "sinusoidal, sinusoidal-interleaved": "models.embedding:SinusoidalPosition",
        "sinusoidal-halves": "models.embedding:SinusoidalHalvesPosition",
    },
    "norm": {
        "layernorm": "models.norms:LayerNorm",
        "layernorm-no-affine": "models.norms:AffinelessLayerNorm",
        "layernorm-no-bias": "models.norms:BiaslessLayerNorm",
        "rmsnorm": "models.norms:RMSNorm",
        "zero-centered-rmsnorm": "models.norms:ZeroCenteredNorm",
        "dyt, dynamic-tanh": "models.norms:DynamicTanh",
        "unit": "models.unit:UnitNorm",
    },
    "feed_forward": {
        "mlp": "models.layers:FeedForward",
        "gated": "models.layers:GatedFeedForward",
        "moe-clamped": "models.feed_forwards.mixture:ClampedMixtureOfExperts",
        "moe": "models.feed_forwards.mixture:MixtureOfExperts",
        "moe-sigmoid": "models.feed_forwards.mixture:SigmoidMixtureOfExperts",
        "moe-shared": "models.feed_forwards.mixture:SharedMixtureOfExperts",
        "normalized": "models.unit:NormalizedFeedForward",
    },
    "attention": {
        "multi-head": "models.attention:Attention",
        "differential": "models.attentions.softmaxes:DifferentialAttention",
        "disentangled": "models.attentions.disentangled:DisentangledAttention",
        "disentangled-gated": "models.attentions.disentangled:GatedDisentangledAttention",
        "disentangled-other-rows": "variants.builders.ltg_bert:OtherRowsAttention",
        "exclusive": "models.attentions.outputs:ExclusiveAttention",
        "gated": "models.attentions.outputs:GatedAttention",
        "kv-sharing": "models.attentions.kv_sharing:SharedKeyValueAttention",
        "latent, mla": "models.attentions.latent:LatentAttention",
        "normalized": "models.unit:NormalizedAttention",
        "sinks": "models.attentions.softmaxes:SinkAttention",
        "value-embeddings": "models.attentions.kv_sharing:ValueEmbeddingAttention",
        "value-residual": "models.attentions.kv_sharing:ValueResidualAttention",
        "masked-rows-uniform": "variants.builders.vanilla:UniformMaskedRows",
    },
    "mixer": {
        "attention": "models.layers:AttentionEverywhere",
        "gated-delta-net, gated-deltanet": "models.mixers.delta_net:GatedDeltaNet",
        "kimi-delta-attention, kda": "models.mixers.delta_net:KimiDeltaAttention",
        "short-conv": "models.mixers.short_convolution:ShortConvolution",
    },
    "residual": {
        "plain": "models.residual:Residual",
        "depth-weighted-average, dwa": "models.residuals.depth:DepthWeightedResidual",
        "gated-hyper-connections": "models.residuals.hyper_connections:GatedHyperConnections",
        "hyper-connections": "models.residuals.hyper_connections:HyperConnections",
        "lambdas": "models.residuals.depth:LambdaResidual",
        "manifold-hyper-connections": "models.residuals.hyper_connections:ManifoldHyperConnections",
        "no-first-norm": "models.residual:NoFirstNormResidual",
        "normalized": "models.unit:NormalizedResidual",
        "attention-residuals, attn-res": "models.residuals.depth:AttentionResidual",
    },
    "initializer": {
        "normal": "models.initialization:normal",
        "depth-scaled": "models.initialization:depth_scaled",
        "xavier-uniform": "models.initialization:xavier_uniform",
        "deepnorm": "models.initialization:deepnorm",
        "torch": "models.initialization:torch_default",
        "layer-scaled": "models.initialization:layer_scaled",
        "t5": "models.initialization:t5",
        "mup": "models.parametrization:MaximalUpdate",
        "d2l": "variants.builders.d2l:d2l_initializer",
    },
    "hidden_act": {
        name: f"models.activations:{name}"
        for name in (
            *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"),
            *("gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu"),
            *("relu", "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh", "xielu"),
        )
    },
}
"""The built-in parts by field: a name and its aliases, and where the class or function is below `zoo`."""

DEVIATIONS: dict[str, tuple[str, ...]] = {
    "differential": (
        "The norm of the difference has no learned gain, as in transformers' DiffLlama; the authors' code has one.",
    ),
    "dyt": (
        "Dynamic tanh starts with the same alpha everywhere; for language models the paper chooses alpha by width, "
        "larger in front of attention than elsewhere, and multiplies embeddings by a learned scalar.",
    ),
    "hyper-connections": (
        "Output projections start as in the plain Transformer; the paper scales their deviation by the root of the "
        "number of streams.",
    ),
}
"""How built-in parts differ from their papers."""


def register_built_in() -> None:
    for field, parts in BUILT_IN.items():
        for names, path in parts.items():
            name, *aliases = names.split(", ")
            PART_FIELDS[field].register_lazily(
                name, f"zoo.{path}", aliases=aliases, deviations=DEVIATIONS.get(name, ())
            )


register_built_in()


def deviations_of(name: str) -> tuple[str, ...]:
    """List how a variant, and the parts that its name and definition give, differ from their papers."""
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    settings = variant.settings(preset=spec.preset, quirks=spec.quirks, faithful=spec.faithful)
    return (*variant.deviations, *deviations_of_parts({**settings, **spec.overrides}))


def deviations_of_parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """List how the parts that settings name differ from their papers."""
    named = ((registry, str(settings.get(field))) for field, registry in PART_FIELDS.items())
    return tuple(sentence for registry, part in named if part in registry for sentence in registry.deviations(part))


def option(config: ZooConfig, part: Any, name: str) -> Any:
    """Read a setting that a part has for itself."""
    return getattr(config, name, part.options[name])


NAMED_FIELDS: dict[str, Registry[Any]] = {
    "variant": VARIANTS,
    **PART_FIELDS,
    "classifier_pooler_act": ACTIVATIONS,
    "lm_head_transform_act": ACTIVATIONS,
}
"""Registry of each configuration field that names something registered."""
