"""Residual connections beyond the plain sum: parts of the registry `RESIDUALS`."""

from .hyper_connections import HyperConnections
from .lambdas import LambdaResidual
from .manifold import ManifoldHyperConnections
from .no_first_norm import NoFirstNormResidual

__all__ = ["HyperConnections", "LambdaResidual", "ManifoldHyperConnections", "NoFirstNormResidual"]
