"""Cross entropy over a large vocabulary without ever holding the logits of all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

IGNORED = -100
"""The label of positions without a loss, as everywhere in transformers."""

CHUNK = 1024
"""Tokens whose logits exist at one time."""

Projection = Callable[[torch.Tensor], torch.Tensor]
"""Maps hidden states to logits. *Shape:* (num_tokens, hidden_size) to (num_tokens, vocab_size)"""


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of the losses of all tokens, with gradients computed chunk by chunk while the logits are there.

    A loss has one gradient, scaled by what comes from above; so it can be computed in the forward pass, and logits are
    made once. What is kept for the backward pass are the gradients of hidden states and weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        labels: torch.Tensor,
        project: Projection,
        chunk_size: int,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        """Sum the losses.

        Args:
            ctx: Carries gradients to the backward pass.
            hidden_states: *Shape:* (num_tokens, hidden_size)
            labels: *Shape:* (num_tokens,)
            project: Maps hidden states to logits by the parameters.
            chunk_size: Tokens whose logits exist at one time.
            parameters: What the projection learns.

        Returns:
            *Shape:* ()
        """
        needed = [hidden_states, *parameters] if any(ctx.needs_input_grad) else []
        wanted = [tensor.requires_grad for tensor in needed]
        gradients = [torch.zeros_like(tensor) if wants else None for tensor, wants in zip(needed, wanted, strict=True)]
        total = torch.zeros((), dtype=torch.float32, device=hidden_states.device)
        for start in range(0, len(labels), chunk_size):
            chunk = slice(start, start + chunk_size)
            states = hidden_states[chunk].detach().requires_grad_(bool(wanted) and wanted[0])
            with torch.set_grad_enabled(any(wanted)):
                loss = F.cross_entropy(project(states).float(), labels[chunk], reduction="sum")
            total += loss.detach()
            sources = [source for source, wants in zip((states, *parameters), wanted, strict=False) if wants]
            found = iter(torch.autograd.grad(loss, sources) if sources else ())
            for index, gradient in enumerate(gradients):
                if gradient is not None:
                    (gradient[chunk] if index == 0 else gradient).add_(next(found))
        ctx.gradients = gradients
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients. Arguments and results as autograd wants them."""
        (scale,) = grad_outputs
        states, *parameters = [
            None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients
        ]
        return states, None, None, None, *parameters


def chunked_loss(
    hidden_states: torch.Tensor,
    labels: torch.Tensor,
    project: Projection,
    parameters: Sequence[torch.Tensor],
    num_items_in_batch: torch.Tensor | int | None = None,
    chunk_size: int = CHUNK,
) -> torch.Tensor:
    """The loss of a language model as transformers defines it, for positions and labels that are aligned.

    Args:
        hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
        labels: Token ids, -100 where there is no loss: those positions are not even projected. *Shape:* (batch_size,
            seq_len)
        project: Maps hidden states to logits by the parameters.
        parameters: What the projection learns.
        num_items_in_batch: What the sum is divided by, the number of labels if not given.
        chunk_size: Tokens whose logits exist at one time.

    Returns:
        The mean loss of a token, NaN if there is none, as in transformers. *Shape:* ()
    """
    has_label = labels != IGNORED
    total: torch.Tensor = ChunkedCrossEntropy.apply(
        hidden_states[has_label], labels[has_label], project, chunk_size, *parameters
    )
    return total / (has_label.sum() if num_items_in_batch is None else num_items_in_batch)
