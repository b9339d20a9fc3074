"""Padding removed once at a stack's entry: tokens of a batch in one row, and attention a sequence at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention_backends import dropping_attention, torch_attention
from .dropout import draws_bits
from .switches import current

SHORT = 48
"""Mean number of tokens of a sequence below which one call of attention with padding is cheaper than many without."""

GAIN = 150_000
"""Packing pays where what it saves of a layer's token-wise work is more than this for each sequence: tokens times
hidden_size squared, so 9 tokens at a hidden size of 128. Measured on two cores of a Xeon, as SHORT and SHARE were."""

SHARE = 0.125
"""And where at least this share of the positions is padding."""


@dataclass(frozen=True)
class Unpadding:
    """Where the tokens of a padded batch are.

    Args:
        indices: Places of the tokens among all positions of the batch. *Shape:* (num_tokens,)
        starts: First position of every sequence.
        lengths: Number of tokens of every sequence; they stand without a gap.
        batch_size: Number of sequences.
        seq_len: Number of positions of each.
    """

    indices: torch.Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    batch_size: int
    seq_len: int

    @property
    def saved(self) -> int:
        """How many positions hold no token."""
        return self.batch_size * self.seq_len - len(self.indices)

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> Unpadding | None:
        """Find the tokens.

        Args:
            attention_mask: 1 for real tokens, 0 for padding. *Shape:* (batch_size, seq_len)

        Returns:
            Where they are; None where a sequence is empty or has padding between its tokens.
        """
        is_token = attention_mask.bool()
        seq_len = is_token.shape[1]
        places = torch.arange(seq_len, device=is_token.device)
        first = torch.where(is_token, places, seq_len).amin(dim=1)
        last = torch.where(is_token, places, -1).amax(dim=1)
        lengths = is_token.sum(dim=1)
        if not bool(((lengths > 0) & (last - first + 1 == lengths)).all()):
            return None
        return cls(
            is_token.flatten().nonzero()[:, 0],
            tuple(first.tolist()),
            tuple(lengths.tolist()),
            is_token.shape[0],
            seq_len,
        )

    @classmethod
    def full(cls, batch_size: int, seq_len: int, device: torch.device) -> Unpadding:
        """Every position holds a token.

        Args:
            batch_size: Number of sequences.
            seq_len: Number of positions of each.
            device: Where the batch is.

        Returns:
            A unpadding that only lays sequences end to end.
        """
        indices = torch.arange(batch_size * seq_len, device=device)
        return cls(indices, (0,) * batch_size, (seq_len,) * batch_size, batch_size, seq_len)

    def unpad(self, states: torch.Tensor) -> torch.Tensor:
        """Lay the tokens of all sequences end to end.

        Args:
            states: *Shape:* (batch_size or 1, seq_len, ...)

        Returns:
            *Shape:* (1, num_tokens, ...)
        """
        states = states.expand(self.batch_size, *states.shape[1:])
        return states.flatten(0, 1).index_select(0, self.indices)[None]

    def pad(self, states: torch.Tensor) -> torch.Tensor:
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
    """What attention on unpadded sequences takes for a mask: which queries may see which keys.

    Args:
        queries: Where the queries are.
        keys: Where the keys are.
    """

    queries: Unpadding
    keys: Unpadding

    def visible(self, is_causal: bool) -> torch.Tensor | None:
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


def unpadded_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """PyTorch's scaled dot-product attention on unpadded sequences: each by itself, or short ones padded again.

    Args:
        module: The attention module, for `is_causal`.
        query: *Shape:* (1, num_attention_heads, num_tokens, head_dim)
        key: *Shape:* (1, num_key_value_heads, num_key_tokens, head_dim)
        value: *Shape:* as key.
        attention_mask: Tells the sequences apart.
        scaling: Multiplies the scores.
        dropout: Probability of dropping an attention weight.
        position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)
        kwargs: What other backends take.

    Returns:
        The mixed values, *Shape:* (1, num_tokens, num_attention_heads, head_dim), and no weights.
    """
    is_causal = getattr(module, "is_causal", False)
    backend = dropping_attention if draws_bits(query, dropout) else torch_attention
    backend = partial(backend, module, scaling=scaling, dropout=dropout)
    is_short = len(attention_mask.keys.indices) < SHORT * attention_mask.keys.batch_size
    attend = attend_padded if is_short else attend_by_sequence
    return attend(query, key, value, attention_mask, is_causal, position_bias, backend), None


def attend_padded(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: UnpaddedMask,
    is_causal: bool,
    position_bias: torch.Tensor | None,
    backend: Callable[..., Any],
) -> torch.Tensor:
    """Put the padding back for attention alone. Shapes as for `unpadded_attention`."""
    query, key, value = (
        unpadding.pad(states.transpose(1, 2)).transpose(1, 2)
        for unpadding, states in ((mask.queries, query), (mask.keys, key), (mask.keys, value))
    )
    visible = mask.visible(is_causal)
    if position_bias is not None:
        visible = position_bias if visible is None else position_bias.masked_fill(~visible, -torch.inf)
    mixed, _ = backend(query, key, value, visible, is_causal=False)
    return mask.queries.unpad(mixed)


def attend_by_sequence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: UnpaddedMask,
    is_causal: bool,
    position_bias: torch.Tensor | None,
    backend: Callable[..., Any],
) -> torch.Tensor:
    """Call attention for each sequence, without any mask. Shapes as for `unpadded_attention`."""
    queries, keys = mask.queries, mask.keys
    sequences = zip(
        query.split(queries.lengths, dim=2),
        key.split(keys.lengths, dim=2),
        value.split(keys.lengths, dim=2),
        strict=True,
    )
    mixed = []
    for row, states in enumerate(sequences):
        bias = None
        if position_bias is not None:
            first_query, first_key = queries.starts[row], keys.starts[row]
            rows = slice(first_query, first_query + queries.lengths[row])
            columns = slice(first_key, first_key + keys.lengths[row])
            bias = position_bias[row, :, rows, columns][None]
            if is_causal:
                bias = bias + torch.full_like(bias[0, 0], -torch.inf).triu(1)
        mixed.append(backend(*states, bias, is_causal=is_causal and bias is None)[0])
    return torch.cat(mixed, dim=1)


def find_unpaddings(
    config: PreTrainedConfig, *sequences: tuple[Any, torch.Tensor | None]
) -> tuple[Unpadding | None, ...]:
    """Find the tokens of everything that a stack reads, if it can do without padding and gains by it.

    Args:
        config: The configuration of the stack in this call.
        sequences: A padding mask and the states that it belongs to, of the stack's input and of what cross attention
            reads. *Shape:* (batch_size, seq_len) or None, and (batch_size, seq_len, hidden_size) or None

    Returns:
        An unpadding for each that has states, or None for all.
    """
    nothing = (None,) * len(sequences)
    is_traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if is_traced:  # lengths are data, which a graph does not know
        return nothing
    mode = current().unpadding
    backend = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)  # somebody may have registered another sdpa
    if mode == "never" or backend is not sdpa_attention_forward or config.attention != "multi-head":
        return nothing
    unpaddings = []
    for mask, states in sequences:
        unpadding = None
        if states is not None:
            unpadding = find_tokens(mask, states)
            if unpadding is None or (config.sliding_window or unpadding.seq_len) < unpadding.seq_len:
                return nothing
            if config.is_decoder and any(unpadding.starts):  # padding before a sequence predicts its first token
                return nothing
        unpaddings.append(unpadding)
    found = [unpadding for unpadding in unpaddings if unpadding is not None]
    saved = sum(unpadding.saved for unpadding in found)
    sequences_in_all = sum(unpadding.batch_size for unpadding in found)
    positions = sum(unpadding.batch_size * unpadding.seq_len for unpadding in found)
    pays = saved * config.hidden_size**2 > GAIN * sequences_in_all and saved >= SHARE * positions
    return tuple(unpaddings) if pays or mode == "always" else nothing


def find_tokens(attention_mask: Any, states: torch.Tensor) -> Unpadding | None:
    """Find the tokens of one batch of sequences.

    Args:
        attention_mask: 1 for real tokens, *Shape:* (batch_size, seq_len); None for no padding; or another mask.
        states: *Shape:* (batch_size, seq_len, hidden_size)

    Returns:
        Where they are; None where that cannot be told, or only by waiting for an accelerator.
    """
    if states.device.type != "cpu":
        return None
    if attention_mask is None:
        batch_size, seq_len = states.shape[:2]
        return Unpadding.full(batch_size, seq_len, states.device)
    is_padding_mask = isinstance(attention_mask, torch.Tensor) and attention_mask.shape == states.shape[:2]
    return Unpadding.of(attention_mask) if is_padding_mask else None
