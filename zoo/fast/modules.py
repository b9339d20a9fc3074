"""PyTorch's Identity, LayerNorm and Dropout without the overhead of a call, unless they have hooks.

Dropout (Srivastava et al. 2014) has cheaper random numbers on a CPU: PyTorch draws one 64-bit number per element
sequentially, which takes longer than most of a layer's other work. Here 16 bits are drawn per element.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch, _is_tracing
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

from .switches import current

RECORDER = "transformers.utils.output_capturing"
"""Module of hooks that transformers leaves on a model after the first call with hidden states or attention weights; in
other calls they do nothing."""

BITS = 16
LEVELS = 1 << BITS
WORD = torch.int64
NUMBERS_OF_WORD = 64 // BITS

PAYS_FROM = 4096
"""Number of elements from which cheaper random numbers outweigh the extra operations. Measured on two cores of a Xeon.
"""


def is_watched(module: nn.Module) -> bool:
    """Whether calling a module runs more than its class's forward: hooks, an own `forward`, or its own compilation."""
    hooks = module._forward_hooks
    return bool(
        module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
        or module._compiled_call_impl is not None
        or (hooks and any(getattr(hook, "__module__", None) != RECORDER for hook in hooks.values()))
        or _has_any_global_hook()
    )


class Identity(nn.Identity):
    """`torch.nn.Identity` without the call, which takes as long as a small operation, unless it has hooks."""

    def __call__(self, states: Tensor) -> Any:
        """Return the states. *Shape:* any."""
        return super().__call__(states) if is_watched(self) else states


class QuickLayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm`; `torch.nn.functional.layer_norm` takes twice as long for a single token."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the last dimension. *Shape:* (..., width), unchanged."""
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that uses [`dropout`][], and skips the call if it has no effect."""

    def __call__(self, states: Tensor) -> Any:
        """Drop elements in training. *Shape:* any, unchanged."""
        return super().__call__(states) if self.training or is_watched(self) else states

    def forward(self, states: Tensor) -> Tensor:
        """Drop elements in training. *Shape:* any, unchanged."""
        return dropout(states, self.p, training=self.training)


def dropout(states: Tensor, p: float, *, training: bool) -> Tensor:
    """Set elements to zero at random and scale the others up to keep the expectation.

    On a CPU the probability is rounded to a multiple of 2**-16.
    """
    if not (training and draws_bits(states, p)):
        return F.dropout(states, p, training)
    return states * noise_like(states, p)


def is_traced() -> bool:
    """Whether a graph is being traced or `torch.func` is transforming: lengths are unknown, because they are data."""
    return torch.compiler.is_compiling() or _is_tracing() or _functorch.peek_interpreter_stack() is not None


def draws_bits(states: Tensor, p: float) -> bool:
    """Whether dropout draws its own bits; not in compiled code, in `torch.func`, or where PyTorch is faster."""
    if is_traced():
        return False
    mode = current().quick_dropout
    is_possible = states.device.type == "cpu" and states.is_floating_point() and 0 < round(p * LEVELS) < LEVELS
    return is_possible and (mode == "always" or (mode == "auto" and states.numel() >= PAYS_FROM))


def noise_like(states: Tensor, p: float) -> Tensor:
    """Dropout's multiplier from PyTorch's CPU generator: zeros with probability `p`, or else the scale."""
    dropped = round(p * LEVELS)
    words = torch.empty(-(-states.numel() // NUMBERS_OF_WORD), dtype=WORD, device=states.device)
    numbers = words.random_(torch.iinfo(WORD).min, None).view(torch.int16)[: states.numel()].view(states.shape)
    noise = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    # 16 bits are uniform from -2**15 to 2**15 - 1, and `dropped` of these levels lie below the threshold.
    torch.ge(numbers, dropped - LEVELS // 2, out=noise)
    return noise.mul_(LEVELS / (LEVELS - dropped))
