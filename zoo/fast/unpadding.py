"""Unpadding: where the tokens of a padded batch are, so that they can stand end to end in one row.

Attention then runs a sequence at a time on a CPU, and on FlashAttention by `cu_seqlens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Unpadding:
    """Where the tokens of a padded batch are.

    Args:
        indices: Places of the tokens among all positions of the batch. *Shape:* (num_tokens,)
        starts: First position of every sequence.
        lengths: Number of tokens of every sequence; they stand without a gap.
        cu_seqlens: Where sequences begin once they are end to end, and where the last one ends, as FlashAttention takes
            them. *Shape:* (batch_size + 1,)
        seq_len: Number of positions of each.
    """

    indices: Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    cu_seqlens: Tensor
    batch_size: int
    seq_len: int

    @property
    def saved(self) -> int:
        """How many positions hold no token."""
        return self.batch_size * self.seq_len - len(self.indices)

    @classmethod
    def of(cls, attention_mask: Tensor) -> Unpadding | None:
        """Find the tokens. An accelerator is waited for once.

        Args:
            attention_mask: 1 for real tokens, 0 for padding. *Shape:* (batch_size, seq_len)

        Returns:
            Where they are; None where a sequence is empty or has padding between its tokens.
        """
        is_token = attention_mask.bool()
        batch_size, seq_len = is_token.shape
        places = torch.arange(seq_len, device=is_token.device)
        first = torch.where(is_token, places, seq_len).amin(dim=1)
        last = torch.where(is_token, places, -1).amax(dim=1)
        counts = is_token.sum(dim=1)
        starts, ends, lengths = torch.stack([first, last, counts]).tolist()
        # Tokens stand without a gap where the first and the last are as far apart as there are tokens.
        if not all(
            length and end - start + 1 == length for start, end, length in zip(starts, ends, lengths, strict=True)
        ):
            return None
        indices = torch.nonzero_static(is_token.flatten(), size=sum(lengths))[:, 0]
        cu_seqlens = F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
        return cls(indices, tuple(starts), tuple(lengths), cu_seqlens, batch_size, seq_len)

    @classmethod
    def full(cls, batch_size: int, seq_len: int, device: torch.device) -> Unpadding:
        """Every position holds a token.

        Args:
            seq_len: Number of positions of each.

        Returns:
            An unpadding that only lays sequences end to end.
        """
        indices = torch.arange(batch_size * seq_len, device=device)
        cu_seqlens = torch.arange(batch_size + 1, dtype=torch.int32, device=device) * seq_len
        return cls(indices, (0,) * batch_size, (seq_len,) * batch_size, cu_seqlens, batch_size, seq_len)

    @classmethod
    def of_documents(cls, documents: Tensor) -> Unpadding:
        """Tell documents apart that are packed into rows without padding. An accelerator is waited for twice.

        Args:
            documents: The number of a position's document in its row. *Shape:* (batch_size, seq_len)

        Returns:
            An unpadding whose sequences are the documents.
        """
        batch_size, seq_len = documents.shape
        begins = F.pad(documents.diff(dim=1) != 0, (1, 0), value=True).flatten().nonzero()[:, 0]
        cu_seqlens = F.pad(begins.to(torch.int32), (0, 1), value=batch_size * seq_len)
        lengths = tuple(cu_seqlens.diff().tolist())
        indices = torch.arange(batch_size * seq_len, device=documents.device)
        return cls(indices, (0,) * len(lengths), lengths, cu_seqlens, batch_size, seq_len)

    @cached_property
    def rows_by_length(self) -> list[tuple[Tensor, Tensor]]:
        """Sequences as rows, each with those that are less than twice as long or as short.

        Returns:
            Places among all tokens end to end, the last one again behind a shorter sequence, *Shape:* (num_sequences,
            longest); and which of them hold a token of their own, as places in these rows, *Shape:* (num_tokens,).
        """
        lengths = torch.tensor(self.lengths, device="cpu")
        firsts, rows = lengths.cumsum(0) - lengths, []
        doublings = lengths.sub(1).double().add(0.5).log2().floor()
        for doubling in doublings.unique():
            chosen = doublings == doubling
            ends = lengths[chosen, None]
            steps = torch.arange(int(ends.max()), device="cpu")
            places = firsts[chosen, None] + torch.minimum(steps, ends - 1)
            own = (steps < ends).flatten().nonzero()[:, 0]
            rows.append((places.to(self.indices.device), own.to(self.indices.device)))
        return rows

    def unpad(self, states: Tensor) -> Tensor:
        """Lay the tokens of all sequences end to end.

        Args:
            states: *Shape:* (batch_size or 1, seq_len, ...)

        Returns:
            *Shape:* (1, num_tokens, ...)
        """
        states = states.expand(self.batch_size, *states.shape[1:])
        return states.flatten(0, 1).index_select(0, self.indices)[None]

    def pad(self, states: Tensor) -> Tensor:
        """Put every token back where it was, and zeros where there was padding.

        Args:
            states: *Shape:* (1, num_tokens, ...)

        Returns:
            *Shape:* (batch_size, seq_len, ...)
        """
        padded = states.new_zeros(self.batch_size * self.seq_len, *states.shape[2:])
        return padded.index_copy(0, self.indices, states[0]).unflatten(0, (self.batch_size, self.seq_len))


@dataclass(frozen=True)
class UnpaddedMask:
    """What attention on unpadded sequences takes for a mask: which queries may see which keys."""

    queries: Unpadding
    keys: Unpadding

    def flash_kwargs(self) -> dict[str, Any]:
        """The same as transformers' FlashAttention takes it.

        Returns:
            Its `FlashAttentionKwargs`.
        """
        return {
            "cu_seq_lens_q": self.queries.cu_seqlens,
            "cu_seq_lens_k": self.keys.cu_seqlens,
            "max_length_q": max(self.queries.lengths),
            "max_length_k": max(self.keys.lengths),
        }

    def visible(self, is_causal: bool) -> Tensor | None:
        """The same as a tensor, for sequences that are padded again.

        Args:
            is_causal: Whether a query sees only keys up to its own position.

        Returns:
            True for what may be seen, None where that is everything. *Shape:* (batch_size or 1, 1, 1 or query_len,
            key_len)
        """
        causal = None
        if is_causal:
            device = self.keys.indices.device
            causal = torch.ones(self.queries.seq_len, self.keys.seq_len, dtype=torch.bool, device=device).tril()
        if self.keys.saved == 0:
            return None if causal is None else causal[None, None]
        is_token = self.keys.pad(torch.ones_like(self.keys.indices, dtype=torch.bool)[None])[:, None, None]
        return is_token if causal is None else is_token & causal
