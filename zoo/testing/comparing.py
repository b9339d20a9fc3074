"""Comparisons that report what differs when they fail."""

from __future__ import annotations

import torch
from torch import Tensor, nn

TOLERANCE = 1e-9
"""Largest difference that float64 arithmetic in another order makes in a tiny model."""
EFFECT = 1e-7
"""Smallest difference that counts as one."""


def difference(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference; infinity for NaN or different shapes."""
    if one.shape != other.shape:
        return float("inf")
    apart = (one.double() - other.double()).abs().max().item()
    return float("inf") if apart != apart else apart


def assert_equal(one: Tensor, other: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    """Raise AssertionError, naming the property `what`, if tensors differ by more than the tolerance."""
    assert one.shape == other.shape, f"{what}: shapes {tuple(one.shape)} and {tuple(other.shape)} differ"
    apart = difference(one, other)
    assert apart <= tolerance, f"{what}: the largest difference is {apart:.2e}, allowed are {tolerance:.0e}"


def assert_same_weights(one: nn.Module, other: nn.Module, what: str) -> None:
    """Require the weights of two models to be equal bit for bit."""
    weights, others = one.state_dict(), other.state_dict()
    assert weights.keys() == others.keys(), f"{what}: one alone has {sorted(weights.keys() ^ others.keys())}"
    differing = [name for name, weight in weights.items() if not torch.equal(weight, others[name])]
    assert not differing, f"{what}: other weights in {differing}"


def assert_different(one: Tensor, other: Tensor, what: str) -> None:
    """Raise AssertionError, naming the property `what`, if tensors are equal up to rounding."""
    assert difference(one, other) > EFFECT, f"{what}: nothing differs"


def assert_finite(tensor: Tensor, what: str) -> None:
    """Raise AssertionError, naming the tensor `what`, if an element is infinite or NaN."""
    wrong = int((~tensor.isfinite()).sum())
    assert wrong == 0, f"{what}: {wrong} of {tensor.numel()} elements are not finite"
