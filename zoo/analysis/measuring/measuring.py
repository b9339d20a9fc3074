"""Costs of a model: parameters, operations, memory, speed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zoo.analysis.parameters import ids_of_embeddings
from zoo.base.errors import ZooError
from zoo.fast.chunked_loss import IGNORED
from zoo.models.language_modeling import LanguageModel

from .flops import FlopsPerToken, count_flops, flops_per_token
from .machine import gemm_limit
from .speed import decode_speed, num_tokens, prefill_speed


@dataclass(frozen=True)
class Costs:
    """Costs of a model, apart from what training itself has measured. None is what was not, or cannot be, measured.

    Attributes:
        parameters: Each shared one counted once.
        non_embedding_parameters: Without token and position embeddings; the output projection counts, unless it is an
            embedding.
        flops_per_token: Operations a token of a forward pass, at the lengths of the measured batch.
        training_flops_per_token: Operations a token of a forward and backward pass.
        activation_bytes: Bytes that a training step on the measured batch keeps for its backward pass, no parameters
            but what mixed precision converts them to.
        activation_tokens: Positions of that batch.
        prefill_tokens_per_second: Speed of reading prompts, or for an encoder any input.
        decode_tokens_per_second: Tokens written a second, one at a time with a cache, by greedy decoding of one
            sequence; None for models that do not generate.
        decode_latency_p50: Median seconds from one written token to the next.
        decode_latency_p95: The same, of the slowest twentieth.
        model_flops_utilization: Operations a second while training, as a share of `gemm_flops_per_second`.
        gemm_flops_per_second: The most that matrix products reach on this machine, at the model's precision.
        seconds: Duration of the measurement.
    """

    parameters: int
    non_embedding_parameters: int
    flops_per_token: float | None = None
    training_flops_per_token: float | None = None
    activation_bytes: int | None = None
    activation_tokens: int | None = None
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    decode_latency_p50: float | None = None
    decode_latency_p95: float | None = None
    model_flops_utilization: float | None = None
    gemm_flops_per_second: float | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def activation_bytes(model: nn.Module, batch: Mapping[str, Any]) -> int:
    """Add up what one forward pass in training mode saves for the backward pass.

    Args:
        model: The model; mode and random numbers are left as they were.
        batch: Arguments of its forward, labels included if any; on the model's device.

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
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


SHARE = 0.007  # Of a run's training time that is spent on each of reading and writing
SHORTEST, LONGEST = 0.05, 2.0  # Seconds within which that stays


def measure(
    model: PreTrainedModel,
    batch: Mapping[str, Any],
    *,
    training_tokens_per_second: float | None = None,
    training_seconds: float = 0.0,
    flops: FlopsPerToken | None = None,
    dtype: torch.dtype | None = None,
    devices: int = 1,
) -> Costs:
    """Measure what a model costs, after its training or before, but never during it.

    Args:
        model: The model, on the device on which it was trained.
        batch: A batch such as those it was trained on, labels included.
        training_tokens_per_second: How fast training was, padding excluded.
        training_seconds: How long it took; speeds are measured for a share of that.
        flops: The operations a token, where they have been counted before.
        dtype: The precision of products while training, by default the parameters'.
        devices: How many devices trained.
    """
    began = time.perf_counter()
    batch = {name: value.to(model.device) for name, value in batch.items() if isinstance(value, Tensor)}
    if flops is None:
        flops = count_per_token(model, batch)
    seconds = min(max(SHARE * training_seconds, SHORTEST), LONGEST)
    was_training = model.training
    model.eval()
    prefill = prefill_speed(model, batch, seconds)
    decode = decode_speed(model, batch, seconds)
    model.train(was_training)
    embeddings = ids_of_embeddings(model)
    achieved = None if training_tokens_per_second is None else training_tokens_per_second * flops.training / devices
    # A speed that training has reached is possible, even if something else slowed the products down.
    limit = max(gemm_limit(model.device, dtype or model.dtype), achieved or 0.0)
    with torch.autocast(model.device.type, dtype, enabled=dtype is not None):
        # The trainer asks language models for the loss alone.
        kept = activation_bytes(model, {**batch, **({"skip_logits": True} if isinstance(model, LanguageModel) else {})})
    return Costs(
        parameters=model.num_parameters(),
        non_embedding_parameters=sum(
            parameter.numel() for parameter in model.parameters() if id(parameter) not in embeddings
        ),
        flops_per_token=flops.forward,
        training_flops_per_token=flops.training,
        activation_bytes=kept,
        activation_tokens=batch["input_ids"].numel()
        + (batch["labels"].numel() if model.config.is_encoder_decoder else 0),
        prefill_tokens_per_second=prefill,
        decode_tokens_per_second=None if decode is None else decode.tokens_per_second,
        decode_latency_p50=None if decode is None else decode.p50,
        decode_latency_p95=None if decode is None else decode.p95,
        model_flops_utilization=None if achieved is None else achieved / limit,
        gemm_flops_per_second=limit,
        seconds=time.perf_counter() - began,
    )


def count_per_token(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> FlopsPerToken:
    """Count the operations a token of sequences as long as a batch's are without their padding."""
    totals = [num_tokens(batch)]
    if model.config.is_encoder_decoder:
        totals.append(int(batch["labels"].ne(IGNORED).sum()))
    try:
        return flops_per_token(model, *(max(1, round(total / len(batch["input_ids"]))) for total in totals))
    except ZooError:
        return count_flops(model, batch).per_token
