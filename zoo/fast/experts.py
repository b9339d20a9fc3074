"""Choice of transformers' experts implementation for mixture-of-experts layers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from .modules import is_traced

ALIGNMENT = 16  # Row alignment in bytes that PyTorch's grouped matmul requires
ALLOCATED = 64  # Alignment in bytes of memory that PyTorch allocates on processors

ExpertsFunction = Callable[..., Tensor]


def experts_function(experts: Any, one_by_one: ExpertsFunction, hidden_states: Tensor) -> ExpertsFunction:
    """Choose the function that runs experts, by `experts_implementation` as in transformers' own classes.

    Without a grouped matmul in PyTorch, experts run one after the other (`one_by_one`). A batched matmul copies an
    expert's weights for every token, which takes ten to sixty times as long; it is for graphs, where the number of
    tokens is unknown.
    """
    name = experts.config._experts_implementation or "grouped_mm"
    if name == "grouped_mm" and not can_group(experts.gate_up_proj, experts.down_proj):
        name = "eager" if has_values(hidden_states) else "batched_mm"
    return ALL_EXPERTS_FUNCTIONS.get_interface(name, one_by_one)


def can_group(*weights: Tensor) -> bool:
    """Whether PyTorch has a grouped matmul for these weights that graphs may contain."""
    if torch.compiler.is_exporting() or any(weight.device.type == "meta" for weight in weights):
        return False
    return all(
        weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and weight.shape[-1] * weight.element_size() % ALIGNMENT == 0
        for weight in weights
    )


def aligned(weight: Tensor) -> Tensor:
    """A copy of an unaligned weight in inference, so that products do not depend on the place of a file in memory."""
    is_read = not torch.is_grad_enabled() and has_values(weight) and weight.device.type == "cpu"
    return weight.clone() if is_read and weight.data_ptr() % ALLOCATED else weight


def has_values(states: Tensor) -> bool:
    """Whether tensors have values: not while tracing, on fake tensors or in `torch.func`."""
    return not is_traced() and type(states) is Tensor and states.device.type != "meta"
