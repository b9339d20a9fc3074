"""Residual connections beyond the plain sum: parts of the registry `RESIDUALS`."""

from .hyper_connections import HyperConnections
from .lambdas import LambdaResidual
from .manifold import ManifoldHyperConnections

__all__ = ["HyperConnections", "LambdaResidual", "ManifoldHyperConnections"]
