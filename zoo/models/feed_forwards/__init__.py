"""Feed-forward sublayers other than dense ones: parts of the registry `FEED_FORWARDS`."""

from .clamped import ClampedMixtureOfExperts
from .experts import Experts
from .mixture import MixtureOfExperts, SharedMixtureOfExperts, SigmoidMixtureOfExperts
from .normalized import NormalizedFeedForward
from .routing import SigmoidRouter, SoftmaxRouter, balance_experts

__all__ = [
    "ClampedMixtureOfExperts",
    "Experts",
    "MixtureOfExperts",
    "NormalizedFeedForward",
    "SharedMixtureOfExperts",
    "SigmoidMixtureOfExperts",
    "SigmoidRouter",
    "SoftmaxRouter",
    "balance_experts",
]
