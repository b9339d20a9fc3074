"""Residual connections beyond the plain sum: parts of the registry `RESIDUALS`."""

from .depth_weighted import DepthWeightedResidual
from .gated import GatedHyperConnections
from .hyper_connections import HyperConnections
from .lambdas import LambdaResidual
from .manifold import ManifoldHyperConnections
from .normalized import NoFirstNormResidual, NormalizedResidual
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
