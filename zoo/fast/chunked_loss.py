"""Chunked cross entropy: the loss over a large vocabulary without the logits of all tokens in memory.

PyTorch's `F.linear_cross_entropy` (2.13) is no substitute: it sums in the dtype of the hidden states (1% error in
bfloat16), has no label smoothing, and supports linear projections only. Liger's kernels support linear projections only
as well, and patch transformers' own classes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .modules import is_traced
from .switches import current

IGNORED = -100  # The label of positions without a loss, as everywhere in transformers


def up_to_last_label(labels: Tensor) -> Tensor:
    """1 up to the last label of each row, 0 after it, where no causal loss depends on a token. *Shape:* as labels."""
    return labels.ne(IGNORED).long().flip(1).cummax(dim=1).values.flip(1)


LOGITS = 1 << 24  # Logits in memory at one time; more are no faster
SMALLEST_CHUNK = 128  # Lower bound of tokens per chunk, because matmuls with fewer rows are slow
FEW = 100_000  # Up to this many logits the plain loss is as fast and is used

Projection = Callable[[Tensor], Tensor]
"""Maps hidden states to logits. *Shape:* (num_tokens, hidden_size) to (num_tokens, vocab_size)"""


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of the losses of all tokens; the forward pass computes the gradients, which the backward pass only scales."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        labels: Tensor,
        ignored: Tensor | None,
        project: Projection,
        chunk_size: int,
        label_smoothing: float,
        z_loss: float,
        *parameters: Tensor,
    ) -> Tensor:
        """Sum the losses of hidden states, (num_tokens, hidden_size); `ignored` is True at positions without loss."""
        learns = [ctx.needs_input_grad[0], *ctx.needs_input_grad[7:]]
        if torch.is_inference_mode_enabled():  # where parameters still count as needing gradients
            learns = [False] * len(learns)
        gradients: list[Tensor | None] = [None] * len(learns)
        if learns[0]:
            gradients[0] = torch.empty_like(hidden_states)
        total = torch.zeros((), dtype=torch.float32, device=hidden_states.device)
        for start in range(0, len(labels), chunk_size):
            chunk = slice(start, start + chunk_size)
            states = hidden_states[chunk].detach().requires_grad_(learns[0])
            with torch.set_grad_enabled(any(learns)):
                logits = project(states)
            without = None if ignored is None else ignored[chunk]
            loss, gradient = loss_and_gradient(logits.detach(), labels[chunk], without, label_smoothing, z_loss)
            total += loss
            sources = [source for source, wants in zip((states, *parameters), learns, strict=True) if wants]
            found = iter(torch.autograd.grad(logits, sources, gradient.to(logits.dtype)) if sources else ())
            for place, (wants, sum_) in enumerate(zip(learns, gradients, strict=True)):
                if wants and place == 0 and sum_ is not None:
                    sum_[chunk] = next(found)
                elif wants:
                    own = next(found)
                    precise = torch.promote_types(own.dtype, torch.float32)  # 16 bits stop growing after many chunks
                    gradients[place] = own if sum_ is None else sum_.to(precise).add_(own)
        ctx.gradients = gradients
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grad_outputs
        states, *parameters = [
            None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients
        ]
        return states, None, None, None, None, None, None, *parameters


def loss_and_gradient(
    logits: Tensor, labels: Tensor, ignored: Tensor | None, label_smoothing: float, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sum the losses of tokens, and compute the gradient, in float32, in place of the probabilities."""
    labels = labels[:, None]
    log_probabilities = logits.float().log_softmax(dim=-1)
    losses = (label_smoothing - 1) * log_probabilities.gather(1, labels)
    if label_smoothing:
        losses -= label_smoothing * log_probabilities.mean(dim=-1, keepdim=True)
    gradient = log_probabilities.exp_()
    if z_loss:
        normalizers = logits.float().logsumexp(dim=-1, keepdim=True)
        losses += z_loss * normalizers.square()
        gradient *= 1 + 2 * z_loss * normalizers
    if label_smoothing:
        gradient -= label_smoothing / logits.shape[-1]
    target = torch.full_like(labels, label_smoothing - 1, dtype=gradient.dtype)
    gradient.scatter_add_(1, labels, target)
    if ignored is None:
        return losses.sum(), gradient
    ignored = ignored[:, None]
    return losses.masked_fill_(ignored, 0).sum(), gradient.masked_fill_(ignored, 0)


def cross_entropy(
    head: Any,
    hidden_states: Tensor,
    labels: Tensor,
    skip_logits: bool,
    label_smoothing: float,
    *,
    z_loss: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
    **kwargs: Any,
) -> tuple[Tensor | None, Tensor]:
    """Mean cross entropy per token, chunked if logits are not requested and chunks are faster.

    Args:
        head: A language model: its `lm_head`, `project` to logits by `head_modules`, and `targets` where labels are
            predicted.
        hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
        labels: Token ids, -100 to ignore. *Shape:* (batch_size, seq_len)
        label_smoothing: Share of the target that is spread over the whole vocabulary (Szegedy et al. 2016).
        z_loss: Weight of the squared log of the softmax's normalizer (Chowdhery et al. 2022, PaLM, section 5).
        num_items_in_batch: Divisor of the summed loss, by default the number of labels.

    Returns:
        Logits, *Shape:* (batch_size, seq_len, vocab_size), or None if they were skipped; and the loss, *Shape:* ()
    """
    targets = head.targets(labels, **kwargs)
    vocab_size = head.lm_head.out_features
    # A replica of DataParallel has no parameters: its weights are non-leaf tensors.
    parameters = [parameter for module in head.head_modules() for parameter in module.parameters()]
    if skip_logits and parameters and pays(targets, vocab_size):
        chunk_size = chunk_size_for(vocab_size)
        total = chunked_loss(hidden_states, targets, head.project, parameters, chunk_size, label_smoothing, z_loss)
        return None, mean_loss(total, targets, num_items_in_batch)
    logits = head.project(hidden_states)
    loss = mean_loss(summed_loss(logits, targets, label_smoothing, z_loss), targets, num_items_in_batch)
    return None if skip_logits else logits, loss


def summed_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """Sum of the losses of all tokens, in float32, with label smoothing and z-loss."""
    scores, targets = logits.flatten(0, -2).float(), labels.flatten()
    loss = F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing)
    if z_loss:
        loss = loss + z_loss * scores.logsumexp(dim=-1).masked_fill(targets == IGNORED, 0).square().sum()
    return loss


def mean_loss(total: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Mean loss per token, or per `num_items_in_batch`, as transformers defines it; NaN without labels."""
    return total / ((labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)


def chunked_loss(
    hidden_states: Tensor,
    labels: Tensor,
    project: Projection,
    parameters: Sequence[Tensor],
    chunk_size: int,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Sum of the losses of all tokens, for aligned positions; on the CPU those without a loss are not projected."""
    states, labels = hidden_states.flatten(0, -2), labels.flatten()
    ignored: Tensor | None = labels == IGNORED
    if labels.device.type == "cpu" and type(labels) is Tensor:  # fake tensors have no values to select by
        (with_label,) = torch.where(labels != IGNORED)
        states, labels, ignored = states.index_select(0, with_label), labels[with_label], None
    labels = labels.masked_fill(labels == IGNORED, 0)  # but not what is wrong, such as -1
    return ChunkedCrossEntropy.apply(states, labels, ignored, project, chunk_size, label_smoothing, z_loss, *parameters)


def chunk_size_for(vocab_size: int) -> int:
    return max(SMALLEST_CHUNK, LOGITS // vocab_size)


def pays(labels: Tensor, vocab_size: int) -> bool:
    """Whether to compute a loss in chunks, by the mode in [`zoo.fast.switches`][]; never while traced."""
    if is_traced() or (mode := current().chunked_loss) == "never":
        return False
    return mode == "always" or labels.numel() * vocab_size > FEW
