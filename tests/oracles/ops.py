"""The arithmetic the oracles share: affine maps, softmax, layer norm, activations."""

import math

import torch
from torch import Tensor

from .weights import StateDict


def linear(x: Tensor, weights: StateDict, name: str) -> Tensor:
    """Multiply by the matrix `name`.weight. *Shape:* (..., in_features) -> (..., out_features)."""
    return x @ weights[f"{name}.weight"].T


def affine(x: Tensor, weights: StateDict, name: str) -> Tensor:
    """Multiply by `name`.weight and add `name`.bias. *Shape:* (..., in_features) -> (..., out_features)."""
    return linear(x, weights, name) + weights[f"{name}.bias"]


def layer_norm(x: Tensor, weights: StateDict, name: str, eps: float = 1e-5) -> Tensor:
    """Standardise over the trailing dimensions that `name`.weight has, then scale and shift."""
    gain, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    axes = tuple(range(-gain.dim(), 0))
    centred = x - x.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    return gain * centred / torch.sqrt(variance + eps) + shift


def softmax(scores: Tensor, axis: int = -1) -> Tensor:
    """Exponentials divided by their sum along `axis`; NaN where every score is minus infinity."""
    exponentials = torch.exp(scores - scores.detach().amax(axis, keepdim=True))
    return exponentials / exponentials.sum(axis, keepdim=True)


def relu(x: Tensor) -> Tensor:
    """Zero what is not positive. *Shape:* any -> the same."""
    return torch.where(x > 0, x, torch.zeros_like(x))


def gelu(x: Tensor) -> Tensor:
    """Gaussian error linear unit with the exact error function. *Shape:* any -> the same."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def head_columns(width: int, n_heads: int) -> list[slice]:
    """Split `width` features into `n_heads` runs of neighbouring columns, one slice a head."""
    head_dim = width // n_heads
    return [slice(head * head_dim, (head + 1) * head_dim) for head in range(n_heads)]


def sinusoids(length: int, width: int, base: float = 10000.0) -> Tensor:
    """Positions of Vaswani et al. 2017, section 3.5, in float32 for any dtype of the model.

    The originals build their tables in float32, so a float64 model adds float32-rounded sines: an oracle in full
    precision would differ from them by 1e-7 and more.

    *Shape:* (length, width), sines in even columns and cosines in odd ones
    """
    pairs = torch.arange(0, width, 2, dtype=torch.float32)
    angles = torch.arange(length, dtype=torch.float32)[:, None] / torch.pow(base, pairs / width)
    table = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return table.reshape(length, -1)
