"""Choices of the architecture's axes: the meaning of each word in a configuration.

Axes with classes that a plugin may add to (positions, norms, feed-forwards, attentions, mixers, residual connections,
initializers) are registries in [`zoo.models.parts`][]; the axes here are closed sets.
"""

from enum import StrEnum


class NormPlacement(StrEnum):
    """Position of the norm around a sublayer. `x` is the residual stream, `f` the sublayer."""

    POST = "post"
    """`norm(x + f(x))`: the original Transformer (Vaswani et al. 2017, section 3.1)."""
    PRE = "pre"
    """`x + f(norm(x))` (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture")."""
    SANDWICH = "sandwich"
    """`x + norm(f(norm(x)))` (Ding et al. 2021, CogView, section 2.4)."""
    RES_POST = "res-post"
    """`x + norm(f(x))`: the norm sees the branch only (Liu et al. 2022, Swin Transformer V2, section 3.2)."""
    DEEPNORM = "deepnorm"
    """`norm(alpha * x + f(x))` with a depth-dependent alpha (Wang et al. 2022, DeepNet, table 1)."""
    NONE = "none"
    """`x + f(x)`: no normalisation in the layers."""


class Pooling(StrEnum):
    """How a sequence classifier turns token vectors into one vector."""

    CLS = "cls"
    """The first token's vector."""
    MEAN = "mean"
    """The mean over real (not padded) tokens."""
    MAX = "max"
    """The elementwise maximum over real (not padded) tokens."""
    LAST = "last"
    """The last real token's vector, the only one that depends on the whole sequence in a causal stack."""


class QKNorm(StrEnum):
    """Normalisation of queries and keys before their product (Henry et al. 2020, "Query-Key Normalization")."""

    HEAD = "head"
    """Each head's vector is normalised by itself, one weight vector of width head_dim."""
    FULL = "full"
    """The whole projection is normalised before it is split into heads (OLMo 2, section 3.2)."""


class AttentionScale(StrEnum):
    """Divisor of the product of a query and a key before the softmax."""

    HEAD_DIM = "head-dim"
    """sqrt(head_dim), as in the paper."""
    HIDDEN_SIZE = "hidden-size"
    """sqrt(hidden_size)."""
    NONE = "none"
    """1: no scale at all (T5)."""


class ResidualScaling(StrEnum):
    """A learned weight on one arm of every residual connection."""

    LAYER_SCALE = "layer-scale"
    """One weight per channel on the branch, initially small (Touvron et al. 2021, CaiT, section 2)."""
    REZERO = "rezero"
    """One scalar per branch, initially zero (Bachlechner et al. 2020, ReZero)."""


PARAMETRIZATIONS = {
    "standard": "The variant's own initialisation, one learning rate for all weights.",
    "mup": "Maximal update: updates that are as large in a wide model as in one of `mup_base_width`.",
}
"""Values of `parametrization` and their meaning."""
