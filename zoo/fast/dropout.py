"""Dropout (Srivastava et al. 2014) with cheaper random numbers on a CPU.

PyTorch draws one 64-bit number per element sequentially, which takes longer than most of a layer's other work. This
module draws 16 bits per element.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .hook_detection import is_watched
from .switches import current

BITS = 16
LEVELS = 1 << BITS
WORD = torch.int64
NUMBERS_OF_WORD = 64 // BITS

PAYS_FROM = 4096
"""Number of elements from which cheaper random numbers outweigh the extra operations. Measured on two cores of a Xeon.
"""


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that uses [`dropout`][], and skips the call if it has no effect."""

    def __call__(self, states: Tensor) -> Any:
        """Drop elements in training. *Shape:* any, unchanged."""
        return super().__call__(states) if self.training or is_watched(self) else states

    def forward(self, states: Tensor) -> Tensor:
        """Drop elements in training. *Shape:* any, unchanged."""
        return dropout(states, self.p, training=self.training)


def dropout(states: Tensor, p: float, *, training: bool) -> Tensor:
    """Set elements to zero at random and scale the others up, so that their expectation stays.

    Args:
        states: *Shape:* any
        p: Probability of dropping an element; on a CPU it is rounded to a multiple of 2**-16.
        training: Whether to drop elements.

    Returns:
        *Shape:* as states.
    """
    if not (training and draws_bits(states, p)):
        return F.dropout(states, p, training)
    return states * noise_like(states, p)


def draws_bits(states: Tensor, p: float) -> bool:
    """Whether dropout draws its own bits; not in compiled code, in `torch.func`, or where PyTorch is faster."""
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(states):
        return False
    mode = current().quick_dropout
    is_possible = states.device.type == "cpu" and states.is_floating_point() and 0 < round(p * LEVELS) < LEVELS
    return is_possible and (mode == "always" or (mode == "auto" and states.numel() >= PAYS_FROM))


def noise_like(states: Tensor, p: float) -> Tensor:
    """Draw dropout's multiplier from PyTorch's CPU generator.

    Args:
        states: Gives shape and dtype.
        p: Probability of a zero.

    Returns:
        Zeros, and elsewhere the scale that makes the expectation 1. *Shape:* as states.
    """
    dropped = round(p * LEVELS)
    words = torch.empty(-(-states.numel() // NUMBERS_OF_WORD), dtype=WORD, device=states.device)
    numbers = words.random_(torch.iinfo(WORD).min, None).view(torch.int16)[: states.numel()].view(states.shape)
    noise = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    # 16 bits are uniform from -2**15 to 2**15 - 1, and `dropped` of these levels lie below the threshold.
    torch.ge(numbers, dropped - LEVELS // 2, out=noise)
    return noise.mul_(LEVELS / (LEVELS - dropped))
