"""Residual connections beyond the plain sum: parts of the registry `RESIDUALS`."""

from .depth_weighted import DepthWeightedResidual
from .gated import GatedHyperConnections
from .hyper_connections import HyperConnections
from .lambdas import LambdaResidual
from .manifold import ManifoldHyperConnections
from .no_first_norm import NoFirstNormResidual
from .normalized import NormalizedResidual
from .over_depth import AttentionResidual

__all__ = [
    "AttentionResidual",
    "DepthWeightedResidual",
    "GatedHyperConnections",
    "HyperConnections",
    "LambdaResidual",
    "ManifoldHyperConnections",
    "NoFirstNormResidual",
    "NormalizedResidual",
]
