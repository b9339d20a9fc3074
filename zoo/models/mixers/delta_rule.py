"""The gated delta rule: a matrix for memory, which decays, and in which a key's value is replaced."""

from __future__ import annotations

import torch
from torch.nn import functional as F

CHUNK = 64
"""How many tokens are worked on at once."""


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write every token into a memory and read it (Yang et al. 2024, Gated Delta Networks, equation 10).

    For one token, with the memory `S`, `a = exp(decay)` and `b = strength`:

        S = a S + b k (v - (a S)^T k)^T
        o = S^T q

    In a chunk that begins with the memory `S`, let `A_i` be the product of `a` up to token i, and `u_i` what it adds
    to the row of its key, `b_i (v_i - ...)`. Then `u` solves a triangular system, `u_i + b_i sum_{j<i} A_i / A_j
    (k_i · k_j) u_j = b_i (v_i - A_i S^T k_i)`, which all chunks solve at once but for the term with `S` (section 3.3).

    Args:
        query: *Shape:* (batch_size, num_heads, seq_len, key_dim)
        key: *Shape:* as query.
        value: *Shape:* (batch_size, num_heads, seq_len, value_dim)
        decay: Logarithm of what memory is multiplied by, at most 0. *Shape:* (batch_size, num_heads, seq_len)
        strength: Share of a key's old value that is replaced. *Shape:* as decay.
        state: Memory before the first token, zeros if not given.
            *Shape:* (batch_size, num_heads, key_dim, value_dim)

    Returns:
        What is read, *Shape:* as value, and the memory behind the last token, *Shape:* as state.
    """
    if state is None:
        state = value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])
    if (seq_len := query.shape[2]) == 1:
        return one_token(query, key, value, decay.unsqueeze(-1), strength.unsqueeze(-1), state)
    size = min(CHUNK, seq_len)
    query, key, value, decay, strength = (
        in_chunks(tensor, size) for tensor in (query, key, value, decay.unsqueeze(-1), strength.unsqueeze(-1))
    )
    decayed = decay.cumsum(dim=-2)
    later = torch.ones(size, size, dtype=torch.bool, device=query.device).triu(1)
    between = (decayed - decayed.mT).masked_fill(later, -torch.inf).exp()
    since, until = decayed.exp(), (decayed[..., -1:, :] - decayed).exp()

    targets = torch.cat([strength * value, strength * since * key], dim=-1)
    system = strength * (key @ key.mT) * between
    solved = torch.linalg.solve_triangular(system, targets, upper=False, unitriangular=True)
    written, recalled = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    seen = (query @ key.mT) * between
    query, key, whole = query * since, (key * until).mT, since[..., -1:, :]

    read = []
    for chunk in range(query.shape[2]):
        update = written[:, :, chunk] - recalled[:, :, chunk] @ state
        read.append(query[:, :, chunk] @ state + seen[:, :, chunk] @ update)
        state = whole[:, :, chunk] * state + key[:, :, chunk] @ update
    return torch.cat(read, dim=2)[:, :, :seq_len], state


def one_token(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rule as it is written, for a decode step. Arguments as for [`gated_delta_rule`][], with one token.

    Args:
        decay: *Shape:* (batch_size, num_heads, 1, 1)
        strength: *Shape:* as decay.
    """
    state = decay.exp() * state
    state = state + key.mT @ (strength * (value - key @ state))
    return query @ state, state


def in_chunks(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Cut a sequence into chunks, with zeros behind the last, which write nothing and let nothing decay.

    Args:
        tensor: *Shape:* (batch_size, num_heads, seq_len, width)

    Returns:
        *Shape:* (batch_size, num_heads, num_chunks, size, width)
    """
    return F.pad(tensor, (0, 0, 0, -tensor.shape[2] % size)).unflatten(2, (-1, size))
