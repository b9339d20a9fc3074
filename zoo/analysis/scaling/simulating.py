"""The memory of a training step, found by running it on tensors that have shapes and no values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from zoo.analysis.inputs import inputs_of
from zoo.analysis.measuring.flops import without_values
from zoo.fast.chunked_loss import ChunkedCrossEntropy, chunk_size_for
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel
from zoo.models.attention import Attention
from zoo.models.language_modeling import LanguageModel

from ..measuring.machine import Allocations

MANY = 2**20  # Tokens of a batch in which these, and not the gradients of weights, decide what memory a step takes
CHUNKS = 8  # Chunks of logits of a batch that is as good as many, where each is computed


class Precision(StrEnum):
    """Types of weights and of computation."""

    MIXED = "mixed"  # float32 weights, which autocast converts to bfloat16 in every forward pass: one process, and DDP
    BFLOAT16 = "bfloat16"  # bfloat16 weights, gathered for the layer that needs them: FSDP2
    FLOAT32 = "float32"  # float32 throughout


class Peak(NamedTuple):
    """The most bytes at one time, by the sequences of a batch."""

    least: int  # Of one sequence, with gradients of large weights on their way to those that are kept
    fixed: int  # Of a large batch, what does not depend on the number of sequences; so chunks of logits are full
    each: int  # For every sequence

    def at(self, sequences: int) -> int:
        return max(self.least, self.fixed + self.each * sequences)


class StepMemory(NamedTuple):
    """Peak memory of a training step, without weights, kept gradients, and the optimiser's states."""

    body: Peak  # Without head and loss
    loss: Peak  # While chunks of logits are computed
    whole: Peak

    def logits(self, sequences: int) -> int:
        return max(peak.at(sequences) for peak in self) - self.body.at(sequences)


Forward = Callable[[Any, Tensor], Tensor]
"""A function of a model and ids, (batch_size, seq_len), that makes what is differentiated."""


def step_memory(
    model: ZooPreTrainedModel, seq_len: int, *, precision: Precision, checkpointing: bool, whole_logits: bool
) -> StepMemory:
    with simulated_training(model, precision, checkpointing=checkpointing) as hollow:

        @cache
        def peak_of(forward: Forward, size: int) -> int:
            return peak(hollow, forward, (size, seq_len), precision)

        def grow(forward: Forward, many: int) -> Peak:
            one, less, more = (peak_of(forward, size) for size in (1, many, 2 * many))
            each = (more - less) // many
            return Peak(one, less - each * many, each)

        many, forward = -(-MANY // seq_len), forward_of(hollow, whole_logits)
        body = grow(body_sum, many)
        if not isinstance(hollow, LanguageModel):
            return StepMemory(body, body, body)
        chunk = chunk_size_for(hollow.lm_head.out_features)
        if whole_logits or getattr(hollow, "mtp", None) is not None:
            whole = grow(forward, many if whole_logits else -(-CHUNKS * chunk // seq_len))
            return StepMemory(body, whole, whole)
        loss = grow(forward, -(-2 * chunk // seq_len))  # from here on, two are full
        return StepMemory(body, loss, grow(forward, many))


def batch_memory(
    model: ZooPreTrainedModel,
    sequences: int,
    seq_len: int,
    *,
    precision: Precision,
    checkpointing: bool,
    whole_logits: bool,
) -> int:
    """Find the memory of a training step of one batch, which is less to compute than how it grows."""
    with simulated_training(model, precision, checkpointing=checkpointing) as hollow:
        return peak(hollow, forward_of(hollow, whole_logits), (sequences, seq_len), precision)


def cache_bytes(model: ZooPreTrainedModel, seq_len: int) -> int:
    """Find the memory of the cache of one sequence, in bfloat16, by reading that many tokens."""
    with HollowMode(), fast_paths(unpadding="never"):
        hollow = without_values(model, torch.bfloat16)
        outputs = hollow(**inputs_of(model, torch.empty(1, seq_len, dtype=torch.long)), use_cache=True)
        cache = getattr(outputs, CACHE_NAME)
        is_pair = model.config.is_encoder_decoder
        caches = (cache.self_attention_cache, cache.cross_attention_cache) if is_pair else (cache,)
        kept = pytree.tree_leaves([list(vars(layer).values()) for one in caches for layer in one.layers])
        sizes = {one.untyped_storage()._cdata: one.nbytes for one in kept if isinstance(one, Tensor)}
    return sum(sizes.values())


@contextmanager
def simulated_training(
    model: ZooPreTrainedModel, precision: Precision, *, checkpointing: bool
) -> Iterator[ZooPreTrainedModel]:
    """Copy a model without its values, ready to be trained."""
    with HollowMode(), fast_paths(unpadding="never", quick_dropout="never"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a name that all versions of transformers know
        hollow = without_values(model, torch.bfloat16 if precision == Precision.BFLOAT16 else None).train()
        if model.config._attn_implementation != "eager":
            # Kernels for GPUs keep as little as PyTorch's own; they draw again what they drop, and keep nothing of it.
            hollow.set_attn_implementation("sdpa")
            for module in hollow.modules():
                if isinstance(module, Attention):
                    module.dropout = 0.0
        if checkpointing:
            hollow.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for parameter in hollow.parameters():
            parameter.grad = torch.empty_like(parameter)  # of the batches before, in the same update
        yield hollow


class HollowMode(FakeTensorMode):
    """Makes tensors without values, also by grouped products of experts: PyTorch's own rule knows bfloat16 alone."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten._grouped_mm.default:
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        left, right, ends = args[:3]
        # Rows of each group by its matrix; or for the matrices' gradients, columns by rows of each group.
        groups = () if right.ndim == 3 else (len(ends),)
        return left.new_empty(*groups, left.shape[0], right.shape[-1])


def peak(model: ZooPreTrainedModel, forward: Forward, shape: tuple[int, int], precision: Precision) -> int:
    ids = torch.empty(shape, dtype=torch.long)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    with Allocations([*model.parameters(), *model.buffers(), *gradients]) as allocations:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision != Precision.FLOAT32):
            loss = forward(model, ids)
        loss.backward()
    return allocations.peak


def forward_of(model: ZooPreTrainedModel, whole_logits: bool) -> Forward:
    if not isinstance(model, LanguageModel):
        return body_sum
    return model_loss if whole_logits else chunked_loss


def body_sum(model: ZooPreTrainedModel, ids: Tensor) -> Tensor:
    """Something to differentiate, without a loss."""
    return body_of(model, ids).sum()


def without_cache(model: ZooPreTrainedModel, ids: Tensor) -> dict[str, Any]:
    """Arguments of a forward that keeps no keys and values."""
    has_cache = model.config.is_encoder_decoder or model.config.is_decoder
    return {**inputs_of(model, ids), **({"use_cache": False} if has_cache else {})}


def body_of(model: ZooPreTrainedModel, ids: Tensor) -> Tensor:
    """The last hidden states; of a model that predicts no tokens, its outputs."""
    body = model.model if isinstance(model, LanguageModel) else model
    return body(**without_cache(model, ids))[0]


def model_loss(model: LanguageModel, ids: Tensor) -> Tensor:
    """The loss by all logits at one time."""
    return model(**without_cache(model, ids), labels=ids).loss


def chunked_loss(model: LanguageModel, ids: Tensor) -> Tensor:
    """The loss by the logits of a chunk of tokens, all with labels."""
    if getattr(model, "mtp", None) is not None:  # losses of further tokens need every state
        return model(**without_cache(model, ids), labels=ids, skip_logits=True).loss
    chunk = chunk_size_for(model.lm_head.out_features)
    whole_states = body_of(model, ids)  # held while the loss is computed
    states = whole_states.flatten(0, 1).clone()  # of the tokens that have a label
    states = states[: 2 * chunk]  # further chunks would use the same memory again
    parameters = [parameter for module in model.head_modules() for parameter in module.parameters()]
    labels = ids.flatten()[: 2 * chunk]
    return ChunkedCrossEntropy.apply(states, labels, None, model.project, chunk, 0.0, 0.0, *parameters)
