"""Bytes that a training step keeps for its backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def activation_bytes(model: nn.Module, batch: Mapping[str, Any]) -> int:
    """Add up what one forward pass in training mode saves for the backward pass.

    Args:
        model: The model; mode and random numbers are left as they were.
        batch: Arguments of its forward, labels included if there are any; on the model's device.

    Returns:
        Bytes, each memory counted once however often it is saved; parameters, buffers and the batch itself aside.
    """
    tensors = [value for value in batch.values() if isinstance(value, Tensor)]
    known = {storage_of(tensor)[0] for tensor in (*model.parameters(), *model.buffers(), *tensors)}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        place, size = storage_of(tensor)
        saved[place] = size
        return tensor

    was_training = model.training
    devices = [device for device in {parameter.device for parameter in model.parameters()} if device.type == "cuda"]
    try:
        with (
            torch.random.fork_rng(devices),
            torch.enable_grad(),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        ):
            output = model.train()(**batch)  # kept until the end, so that no memory is used twice
    finally:
        model.train(was_training)
    del output
    return sum(size for place, size in saved.items() if place not in known)


def storage_of(tensor: Tensor) -> tuple[int, int]:
    """Describe where a tensor's memory is."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()
