"""Batches of masked next-token prediction, in which some rows are causal and the others masked: masks and losses."""

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from zoo.base.errors import InputError
from zoo.fast.chunked_loss import IGNORED


def partly_causal(
    inputs: Tensor, attention_mask: Tensor | None, causal_rows: Tensor, window: int | None = None
) -> Tensor:
    """Make the mask of a batch with causal rows: True where a query sees a key.

    *Shape:* (batch_size, 1, seq_len, seq_len), of token ids or embeddings, their mask, and causal rows, (batch_size,).
    """
    rows, length = inputs.shape[:2]
    if attention_mask is not None and getattr(attention_mask, "ndim", None) != 2:
        raise InputError(
            "causal_rows were given with an attention_mask that is no padding mask; give 1 for real tokens"
        )
    places, is_causal = torch.arange(length, device=inputs.device), causal_rows[:, None, None]
    distance = places[:, None] - places
    seen = (distance >= 0) | ~is_causal
    if window is not None:  # as transformers' masks: to both sides, a window ends one position later
        seen = seen & (distance.abs() < window + (~is_causal).long())
    if attention_mask is not None:
        # Padding sees itself, so that no softmax is of nothing.
        seen = (seen & attention_mask[:, None, :].bool()) | (distance == 0)
    return seen.expand(rows, -1, -1)[:, None]


def mixed_loss(
    head: Any,
    logits_and_loss: Callable[..., tuple[Tensor | None, Tensor | None]],
    hidden_states: Tensor,
    labels: Tensor,
    causal_rows: Tensor,
    *,
    num_items_in_batch: Tensor | int | None = None,
    skip_logits: bool = False,
    **options: Any,
) -> tuple[Tensor | None, Tensor]:
    """Weight the mean loss of causal rows, (batch_size,), and that of the others by the number of rows.

    Masked rows have few labels, so a mean over all labels would be nearly that of causal rows. Arguments are as for
    `logits_and_loss` of a language model, with labels where they are predicted. `num_items_in_batch` is the number of
    labels of the update that the batch is a part of, by default its own; or for each kind, as the update's loss is
    weighted by rows, its labels over its share of the rows. *Shape:* () or (2,)
    """
    total = hidden_states.new_zeros((), dtype=torch.float32)
    weights = weights_of_kinds(labels, causal_rows, num_items_in_batch)
    for rows, weight in zip((causal_rows, ~causal_rows), weights, strict=True):
        part, number = labels[rows], (labels[rows] != IGNORED).sum().clamp(min=1)
        own = {**options, "shift_labels": part, "num_items_in_batch": number}
        _, loss = logits_and_loss(hidden_states[rows], part, skip_logits=True, **own)
        assert loss is not None
        total = total + loss * weight
    return None if skip_logits else head.project(hidden_states), total


def has_kinds(num_items_in_batch: Any) -> TypeGuard[Tensor]:
    """Whether numbers of labels are given for causal rows and for the others."""
    return isinstance(num_items_in_batch, Tensor) and num_items_in_batch.numel() == 2


def items_of_kinds(labels: Tensor, causal_rows: Tensor) -> Tensor:
    """Count labels, and rows with labels, of causal rows and of the others. *Shape:* (2, 2), counts by kinds."""
    numbers = labels.ne(IGNORED).sum(dim=1)
    kinds = torch.stack((causal_rows, ~causal_rows))
    return torch.stack(((kinds * numbers).sum(dim=1), (kinds * (numbers > 0)).sum(dim=1)))


def weights_of_kinds(labels: Tensor, causal_rows: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Weights of the mean losses of causal rows and of the others, *Shape:* (2,). Arguments as for `mixed_loss`."""
    numbers, rows = items_of_kinds(labels, causal_rows)
    shares = rows / rows.sum()
    if num_items_in_batch is None:
        return shares
    if has_kinds(num_items_in_batch):
        return torch.where(numbers > 0, numbers / num_items_in_batch.flatten(), 0)
    return shares * numbers.sum() / num_items_in_batch
