"""Which of transformers' ways to run many small networks, each on the tokens that were routed to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from .unpad_layers import is_traced

GROUPED = "grouped_mm"
BATCHED = "batched_mm"
ONE_BY_ONE = "eager"
ALIGNMENT = 16
"""Bytes of which PyTorch's grouped product wants rows to be a multiple."""

ExpertsFunction = Callable[..., Tensor]


def experts_function(experts: Any, one_by_one: ExpertsFunction, hidden_states: Tensor) -> ExpertsFunction:
    """Choose how experts are run, by `experts_implementation` as in transformers' own classes.

    Where PyTorch has no grouped product, experts run one after the other in training. A batched product, which copies
    the weights of an expert for every token that it sees, takes ten times as long there. It is for graphs, which know
    no numbers of tokens, and for inference: products of the copies do not depend on where in a file weights lie.

    Args:
        experts: The module, with its weights in one tensor each and `config`.
        one_by_one: What "eager" means: one network after the other.
        hidden_states: What they are to run on. *Shape:* (num_tokens, hidden_size)

    Returns:
        A function of the module, the tokens, the experts of every token and their weights.
    """
    name = experts.config._experts_implementation or GROUPED
    if name == GROUPED and not can_group(experts.gate_up_proj, experts.down_proj):
        name = ONE_BY_ONE if torch.is_grad_enabled() and has_values(hidden_states) else BATCHED
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


def has_values(states: Tensor) -> bool:
    """Whether there are values to choose by: none are in graphs being made, on fake tensors and in `torch.func`."""
    if is_traced() or torch._C._functorch.is_functorch_wrapped_tensor(states):
        return False
    return type(states) is Tensor and states.device.type != "meta"
