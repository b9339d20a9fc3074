"""The gated delta rule: a matrix for memory, which decays, and in which a key's value is replaced.

It decays as a whole, or every channel of its keys by itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64  # How many tokens are worked on at once

SHORT_CHUNK = 16  # The same where the work within a chunk grows with the number of channels too


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
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
        state: Memory before the first token, zeros if not given. *Shape:* (batch_size, num_heads, key_dim, value_dim)

    Returns:
        Outputs, *Shape:* as value, and the memory after the last token, *Shape:* as state.
    """
    if query.shape[2] == 1:
        return one_token(query, key, value, decay.unsqueeze(-1), strength.unsqueeze(-1), state)
    size = min(CHUNK, query.shape[2])
    chunks = Chunks(
        *(in_chunks(states, size) for states in (query, key, value, decay.unsqueeze(-1), strength[..., None]))
    )
    between = chunks.decayed - chunks.decayed.mT
    between = between.masked_fill(chunks.later, -torch.inf).exp()
    keys, seen = chunks.key @ chunks.key.mT * between, chunks.query @ chunks.key.mT * between
    return chunks.solve(keys, seen, state, query.shape[2])


def channel_gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same rule with a decay per channel of a key (Kimi Team 2025, Kimi Linear, equation 1).

    `a` is a diagonal matrix here, and `A_i / A_j (k_i · k_j)` is `k_i^T (A_i / A_j) k_j`, with quotients that differ by
    channel. They are computed as written, at most 1 each, where products of `A_i k_i` and `k_j / A_j` would
    overflow; so chunks are shorter.

    Args:
        decay: Logarithm of the factor on a channel of memory, at most 0. *Shape:* as key.
    """
    if query.shape[2] == 1:
        return one_token(query, key, value, decay.mT, strength.unsqueeze(-1), state)
    size = min(SHORT_CHUNK, query.shape[2])
    chunks = Chunks(*(in_chunks(states, size) for states in (query, key, value, decay, strength.unsqueeze(-1))))
    between = chunks.decayed.unsqueeze(-2) - chunks.decayed.unsqueeze(-3)
    between = between.masked_fill(chunks.later.unsqueeze(-1), -torch.inf).exp()
    both = (between * chunks.key.unsqueeze(-3)) @ torch.stack([chunks.key, chunks.query], dim=-1)
    keys, seen = both.unbind(dim=-1)
    return chunks.solve(keys, seen, state, query.shape[2])


@dataclass
class Chunks:
    """A sequence cut into chunks. *Shape:* (batch_size, num_heads, num_chunks, size, ...) of everything."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor  # One number a token, or one a channel
    strength: Tensor

    def __post_init__(self) -> None:
        size = self.query.shape[-2]
        self.decayed = self.decay.cumsum(dim=-2)
        self.later = torch.ones(size, size, dtype=torch.bool, device=self.query.device).triu(1)

    def solve(self, keys: Tensor, seen: Tensor, state: Tensor | None, seq_len: int) -> tuple[Tensor, Tensor]:
        """Solve every chunk's system, and go from chunk to chunk with the memory."""
        since, until = self.decayed.exp(), (self.decayed[..., -1:, :] - self.decayed).exp()
        targets = torch.cat([self.strength * self.value, self.strength * since * self.key], dim=-1)
        solved = torch.linalg.solve_triangular(self.strength * keys, targets, upper=False, unitriangular=True)
        written, recalled = solved.split([self.value.shape[-1], self.key.shape[-1]], dim=-1)
        query, key, whole = self.query * since, (self.key * until).mT, since[..., -1:, :].mT
        state = empty_memory(self.key[:, :, 0], self.value[:, :, 0]) if state is None else state
        read = []
        for chunk in range(query.shape[2]):
            update = written[:, :, chunk] - recalled[:, :, chunk] @ state
            read.append(query[:, :, chunk] @ state + seen[:, :, chunk] @ update)
            state = whole[:, :, chunk] * state + key[:, :, chunk] @ update
        return torch.cat(read, dim=2)[:, :, :seq_len], state


def empty_memory(key: Tensor, value: Tensor) -> Tensor:
    """Memory before the first token: zeros, (batch_size, num_heads, key_dim, value_dim)."""
    return value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])


def one_token(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The rule for one token; decay is (batch_size, num_heads, 1 or key_dim, 1), strength (..., 1, 1)."""
    state = decay.exp() * (empty_memory(key, value) if state is None else state)
    state = state + key.mT @ (strength * (value - key @ state))
    return query @ state, state


def in_chunks(tensor: Tensor, size: int) -> Tensor:
    """Cut into zero-padded chunks. *Shape:* (..., seq_len, width) -> (..., num_chunks, size, width)."""
    return F.pad(tensor, (0, 0, 0, -tensor.shape[2] % size)).unflatten(2, (-1, size))
