"""Root-mean-square normalisation (Zhang and Sennrich 2019) of few operations.

PyTorch has no kernel of it for CPUs: it composes the forward of six operations, of which three write as much as they
read, and the backward of more than a dozen. Here two of the forward's do, one in place, and the backward is that of
layer normalisation, which has a kernel, with a mean of zero: it is the gradient but for a row's mean of weighted
gradients, which layer normalisation subtracts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F


def rms_norm(states: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Normalise the last dimension, and multiply by the weight if given. *Shape:* (..., width), unchanged."""
    if not is_composed(states, weight):
        normalised = F.rms_norm(states, states.shape[-1:], eps=eps)
        return normalised if weight is None else weight * normalised
    if torch.is_grad_enabled() and (states.requires_grad or (weight is not None and weight.requires_grad)):
        found: Tensor = RMSNormFunction.apply(states, weight, eps)
        return found
    return scaled(states, inverse_rms(states, eps), weight)


def is_composed(states: Tensor, weight: Tensor | None) -> bool:
    """Whether eager PyTorch would compose the norm: in float32 or more on a CPU, outside of `torch.func`."""
    if states.device.type != "cpu" or states.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or forward_ad._current_level >= 0:
        return False
    given = (states,) if weight is None else (states, weight)
    return not any(one.dtype != states.dtype or torch._C._functorch.is_functorch_wrapped_tensor(one) for one in given)


def inverse_rms(states: Tensor, eps: float) -> Tensor:
    """The factor on every row. *Shape:* (..., width) -> (..., 1)."""
    norms = torch.linalg.vector_norm(states, 2, -1, True)
    return torch.addcmul(norms.new_full((), eps), norms, norms, value=1 / states.shape[-1]).rsqrt_()


def scaled(states: Tensor, factors: Tensor, weight: Tensor | None) -> Tensor:
    """Multiply by factors of rows and by the weight. *Shape:* (..., width), unchanged."""
    normalised = states * factors
    return normalised if weight is None else normalised.mul_(weight)


class RMSNormFunction(torch.autograd.Function):
    """The norm with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """Normalise as [`rms_norm`][]."""
        factors = inverse_rms(states, eps)
        ctx.save_for_backward(states, weight, factors)
        ctx.eps = eps
        return scaled(states, factors, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of states and weight; those of a backward that is differentiated itself are PyTorch's."""
        states, weight, factors = ctx.saved_tensors
        (gradient,) = gradients
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            normalised = F.rms_norm(states, states.shape[-1:], weight, ctx.eps)
            inputs = [one for one, is_wanted in zip((states, weight), wanted, strict=True) if is_wanted]
            found = iter(torch.autograd.grad(normalised, inputs, gradient, create_graph=True))
            return *(next(found) if is_wanted else None for is_wanted in wanted), None
        width, means = states.shape[-1:], torch.zeros_like(factors)
        of_states, of_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, states, width, means, factors, weight, None, [*wanted, False]
        )
        if wanted[0]:
            sums = gradient.sum(-1) if weight is None else gradient @ weight
            of_states.addcmul_(factors, sums.unsqueeze(-1), value=1 / width.numel())
        return of_states if wanted[0] else None, of_weight if wanted[1] else None, None
