"""Unpadding: positions of the tokens in a padded batch, to concatenate them in one row.

Attention then runs one sequence at a time on a CPU, and by `cu_seqlens` on FlashAttention.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention_backends import dropping_attention, torch_attention
from .modules import draws_bits

HALF = (torch.bfloat16, torch.float16)  # Dtypes of its kernel
WIDEST = 256  # The largest head_dim of its kernel, which has to be a multiple of 8


def kernel() -> Callable[..., Any]:
    """PyTorch's function, imported late: it takes more than a second, and is for GPUs only."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


@cache
def has_kernel(device: torch.device) -> bool:
    """Whether a device has the kernel: NVIDIA's, since Ampere."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and "enable_gqa" in inspect.signature(kernel()).parameters
    )


def computes(config: Any, hidden_states: Tensor, *, drops: bool, has_bias: bool) -> bool:
    """Whether the kernel supports the attention of a stack."""
    if drops or has_bias or not has_kernel(hidden_states.device) or not torch.backends.cuda.flash_sdp_enabled():
        return False
    return dtype_of_products(hidden_states) in HALF and config.head_dim % 8 == 0 and config.head_dim <= WIDEST


def dtype_of_products(states: Tensor) -> torch.dtype:
    """Dtype of matrix products of these tensors: autocast's if it is on, otherwise their own."""
    kind = states.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype


def variable_length_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention on all sequences of a batch in one call, without dropout and bias.

    Args:
        query: *Shape:* (1, num_attention_heads, num_tokens, head_dim)
        key, value: *Shape:* (1, num_key_value_heads, num_key_tokens, head_dim)
        sliding_window: Number of positions that a query sees on each side, including its own; None for all.

    Returns:
        The mixed values, *Shape:* (1, num_tokens, num_attention_heads, head_dim), and no weights.
    """
    dtype = dtype_of_products(value)
    states = [one[0].transpose(0, 1).to(dtype) for one in (query, key, value)]
    queries, keys = attention_mask.queries, attention_mask.keys
    before = -1 if sliding_window is None else sliding_window - 1
    mixed = kernel()(
        *states,
        queries.cu_seqlens,
        keys.cu_seqlens,
        max(queries.lengths),
        max(keys.lengths),
        scale=scaling,
        window_size=(before, 0 if getattr(module, "is_causal", False) else before),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return mixed[None], None


@dataclass(frozen=True)
class Unpadding:
    """Positions of the tokens in a padded batch."""

    indices: Tensor  # Indices of the tokens among all positions of the batch. *Shape:* (num_tokens,)
    starts: tuple[int, ...]  # First position of every sequence
    lengths: tuple[int, ...]  # Number of tokens of every sequence, which are contiguous
    cu_seqlens: Tensor  # Cumulative lengths of the sequences, as FlashAttention takes them. *Shape:* (batch_size + 1,)
    batch_size: int
    seq_len: int  # Padded length

    @property
    def saved(self) -> int:
        return self.batch_size * self.seq_len - len(self.indices)

    @classmethod
    def of(cls, attention_mask: Tensor) -> Unpadding | None:
        """Find the tokens by a mask, (batch_size, seq_len), by a device sync; None if one is empty or has gaps."""
        is_token = attention_mask.bool()
        batch_size, seq_len = is_token.shape
        places = torch.arange(seq_len, device=is_token.device)
        first = torch.where(is_token, places, seq_len).amin(dim=1)
        last = torch.where(is_token, places, -1).amax(dim=1)
        counts = is_token.sum(dim=1)
        starts, ends, lengths = torch.stack([first, last, counts]).tolist()
        # Tokens are contiguous if the distance of the first and the last equals their number.
        if not all(
            length and end - start + 1 == length for start, end, length in zip(starts, ends, lengths, strict=True)
        ):
            return None
        indices = torch.nonzero_static(is_token.flatten(), size=sum(lengths))[:, 0]
        cu_seqlens = F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
        return cls(indices, tuple(starts), tuple(lengths), cu_seqlens, batch_size, seq_len)

    @classmethod
    def full(cls, batch_size: int, seq_len: int, device: torch.device) -> Unpadding:
        indices = torch.arange(batch_size * seq_len, device=device)
        cu_seqlens = torch.arange(batch_size + 1, dtype=torch.int32, device=device) * seq_len
        return cls(indices, (0,) * batch_size, (seq_len,) * batch_size, cu_seqlens, batch_size, seq_len)

    @classmethod
    def of_documents(cls, documents: Tensor) -> Unpadding:
        """Unpad rows of packed documents, with the documents as sequences; needs two device syncs on an accelerator."""
        batch_size, seq_len = documents.shape
        begins = F.pad(documents.diff(dim=1) != 0, (1, 0), value=True).flatten().nonzero()[:, 0]
        cu_seqlens = F.pad(begins.to(torch.int32), (0, 1), value=batch_size * seq_len)
        lengths = tuple(cu_seqlens.diff().tolist())
        indices = torch.arange(batch_size * seq_len, device=documents.device)
        return cls(indices, (0,) * len(lengths), lengths, cu_seqlens, batch_size, seq_len)

    @cached_property
    def rows_by_length(self) -> list[tuple[Tensor, Tensor]]:
        """Indices of tokens in padded rows of similar lengths (within a factor of two), and of real tokens in these."""
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
        """Concatenate the tokens of all sequences: (batch_size or 1, seq_len, ...) -> (1, num_tokens, ...)."""
        states = states.expand(self.batch_size, *states.shape[1:])
        return states.flatten(0, 1).index_select(0, self.indices)[None]

    def pad(self, states: Tensor) -> Tensor:
        """Scatter tokens to their padded positions, with zeros for padding; the inverse of [`unpad`][]."""
        padded = states.new_zeros(self.batch_size * self.seq_len, *states.shape[2:])
        return padded.index_copy_(0, self.indices, states[0]).unflatten(0, (self.batch_size, self.seq_len))


@dataclass(frozen=True)
class UnpaddedMask:
    """Attention mask of unpadded sequences."""

    queries: Unpadding
    keys: Unpadding

    def flash_kwargs(self) -> dict[str, Any]:
        """Its FlashAttentionKwargs, as transformers names them."""
        return {
            "cu_seq_lens_q": self.queries.cu_seqlens,
            "cu_seq_lens_k": self.keys.cu_seqlens,
            "max_length_q": max(self.queries.lengths),
            "max_length_k": max(self.keys.lengths),
        }

    def visible(self, is_causal: bool) -> Tensor | None:
        """Boolean mask for sequences that are padded again, (batch_size or 1, 1, 1 or query_len, key_len), or None."""
        causal = None
        if is_causal:
            device = self.keys.indices.device
            causal = torch.ones(self.queries.seq_len, self.keys.seq_len, dtype=torch.bool, device=device).tril()
        if self.keys.saved == 0:
            return None if causal is None else causal[None, None]
        is_token = self.keys.pad(torch.ones_like(self.keys.indices, dtype=torch.bool)[None])[:, None, None]
        return is_token if causal is None else is_token & causal


@torch.compiler.disable(reason="packed documents are as many as the data say")
def mix_documents(mix: Callable[..., Tensor], hidden_states: Tensor, documents: UnpaddedMask) -> Tensor:
    """Let a mixer's `mix` run on every packed document separately, on documents of similar lengths at once."""
    tokens, places, mixed = hidden_states.flatten(0, 1), [], []
    for rows, is_token in documents.queries.rows_by_length:
        rows, is_token = rows.to(tokens.device), is_token.to(tokens.device)
        places.append(rows.take(is_token))
        mixed.append(mix(tokens[rows], None, None).flatten(0, 1)[is_token])
    together = torch.cat(mixed)
    return torch.empty_like(together).index_copy(0, torch.cat(places), together).view_as(hidden_states)


SHORT = 48  # Mean sequence length below which one padded call of attention is cheaper than one call per sequence


def unpadded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """PyTorch's scaled dot-product attention on unpadded sequences: one at a time, or short ones padded again."""
    backend = dropping_attention if draws_bits(query, dropout) else torch_attention
    attend = partial(backend, module, scaling=scaling, dropout=dropout)
    is_causal, queries, keys = getattr(module, "is_causal", False), attention_mask.queries, attention_mask.keys
    if len(keys.indices) < SHORT * keys.batch_size:
        visible = attention_mask.visible(is_causal)
        if position_bias is not None:  # with -inf at hidden keys
            visible = position_bias if visible is None else position_bias.masked_fill(~visible, -torch.inf)
        states = ((queries, query), (keys, key), (keys, value))
        padded = [unpadding.pad(one.transpose(1, 2)).transpose(1, 2) for unpadding, one in states]
        return queries.unpad(attend(*padded, visible, is_causal=False)[0]), None
    mixed = [
        attend(*states, bias, is_causal=is_causal and bias is None)[0]
        for *states, bias in zip(
            query.split(queries.lengths, dim=2),
            key.split(keys.lengths, dim=2),
            value.split(keys.lengths, dim=2),
            sequence_biases(attention_mask, is_causal, position_bias),
            strict=True,
        )
    ]
    return torch.cat(mixed, dim=1), None


def sequence_biases(mask: UnpaddedMask, is_causal: bool, position_bias: Tensor | None) -> list[Tensor | None]:
    """Split a bias into sequences of their own lengths, with -inf for keys hidden from a causal query; None without."""
    queries, keys = mask.queries, mask.keys
    if position_bias is None:
        return [None] * queries.batch_size
    biases: list[Tensor | None] = []
    for row in range(queries.batch_size):
        first_query, first_key = queries.starts[row], keys.starts[row]
        rows = slice(first_query, first_query + queries.lengths[row])
        columns = slice(first_key, first_key + keys.lengths[row])
        bias = position_bias[row, :, rows, columns][None]
        biases.append(bias + torch.full_like(bias[0, 0], -torch.inf).triu(1) if is_causal else bias)
    return biases
