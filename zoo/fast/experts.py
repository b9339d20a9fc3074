"""Which of transformers' ways to run many small networks, each on the tokens that were routed to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

GROUPED = "grouped_mm"
BATCHED = "batched_mm"
ALIGNMENT = 16
"""Bytes of which PyTorch's grouped product wants rows to be a multiple."""

ExpertsFunction = Callable[..., Tensor]


def experts_function(experts: Any, one_by_one: ExpertsFunction) -> ExpertsFunction:
    """Choose how experts are run, by `experts_implementation` as in transformers' own classes.

    Args:
        experts: The module, with its weights in one tensor each and `config`.
        one_by_one: What "eager" means: one network after the other.

    Returns:
        A function of the module, the tokens, the experts of every token and their weights.
    """
    name = experts.config._experts_implementation or GROUPED
    if name == GROUPED and not can_group(experts.gate_up_proj, experts.down_proj):
        name = BATCHED
    return ALL_EXPERTS_FUNCTIONS.get_interface(name, one_by_one)


def can_group(*weights: Tensor) -> bool:
    """Whether PyTorch has a grouped product of these weights, and graphs may hold it."""
    if torch.compiler.is_exporting() or any(weight.device.type == "meta" for weight in weights):
        return False
    return all(
        weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and weight.shape[-1] * weight.element_size() % ALIGNMENT == 0
        for weight in weights
    )
