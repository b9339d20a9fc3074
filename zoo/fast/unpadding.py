"""Unpadding: padding removed once at a stack's entry, so that layers run on the tokens of a batch in one row.

Attention then runs a sequence at a time on a CPU, and on FlashAttention by `cu_seqlens`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import find_packed_sequence_indices
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .switches import current
from .watching import are_untouched

RunLayers = TypeVar("RunLayers", bound=Callable[..., torch.Tensor])

GAIN = 150_000
"""Unpadding pays where what it saves of a layer's token-wise work is more than this for each sequence: tokens times
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
        cu_seqlens: Where sequences begin once they are end to end, and where the last one ends, as FlashAttention takes
            them. *Shape:* (batch_size + 1,)
        seq_len: Number of positions of each.
    """

    indices: torch.Tensor
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    cu_seqlens: torch.Tensor
    batch_size: int
    seq_len: int

    @property
    def saved(self) -> int:
        """How many positions hold no token."""
        return self.batch_size * self.seq_len - len(self.indices)

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> Unpadding | None:
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


class Stack(Protocol):
    """What [`without_padding`][] reads of a stack of layers.

    Attributes:
        layers: What may run without padding, with the norm behind it.
        norm: That norm.
        can_unpad: Whether all of it looks at one token only, but for attention.
        built_of: The classes of which it was built.
    """

    config: Any
    layers: Any
    norm: Any
    can_unpad: bool
    built_of: frozenset[type[nn.Module]]


def without_padding(run_layers: RunLayers) -> RunLayers:
    """Let the layers of a stack run on tokens laid end to end, where that pays and nobody can tell: a decorator.

    Padding stays where there is a cache, where hidden states are recorded, where position ids tell documents in a row
    apart, and where somebody has hooks on the layers or has replaced parts of them.

    Args:
        run_layers: A method of a [`Stack`][], called with the configuration of the call, hidden states and a dataclass
            of what all layers see, whose masks become an [`UnpaddedMask`][].
    """

    @wraps(run_layers)
    def unpadded(self: Any, config: Any, hidden_states: torch.Tensor, context: Any, **kwargs: Any) -> torch.Tensor:
        tokens, source = unpaddings(self, config, hidden_states, context, **kwargs)
        if tokens is None:
            return run_layers(self, config, hidden_states, context, **kwargs)
        changes = {"attention_mask": UnpaddedMask(tokens, tokens), "position_ids": tokens.unpad(context.position_ids)}
        if source is not None:
            changes["encoder_hidden_states"] = source.unpad(context.encoder_hidden_states)
            changes["encoder_attention_mask"] = UnpaddedMask(tokens, source)
        context = replace(context, **changes)
        return tokens.pad(run_layers(self, config, tokens.unpad(hidden_states), context, **kwargs))

    return cast(RunLayers, unpadded)


def unpaddings(
    stack: Stack,
    config: Any,
    hidden_states: torch.Tensor,
    context: Any,
    *,
    output_hidden_states: bool | None = None,
    output_router_logits: bool | None = None,
    **kwargs: Any,
) -> tuple[Unpadding | None, Unpadding | None]:
    """Find out where tokens are, if the layers of a stack are to run without padding in this call.

    Args:
        hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
        output_hidden_states: Whether the caller wants to see what passes between the layers, with its padding.
        output_router_logits: Whether the caller wants to see the scores of routers, with those of padding.

    Returns:
        An unpadding of the stack's input, and one of what cross attention reads; or None for both.
    """
    records = stack.config.output_hidden_states if output_hidden_states is None else output_hidden_states
    records = records or output_router_logits or getattr(stack.config, "output_router_logits", False)
    if context.past_key_values is not None or records or not stack.can_unpad:
        return None, None
    source = (context.encoder_attention_mask, context.encoder_hidden_states)
    found = find_unpaddings(config, (context.attention_mask, hidden_states), source)
    if not any(found) or not are_untouched((stack.layers, stack.norm), stack.built_of):
        return None, None
    documents = None
    if config.is_decoder and context.attention_mask is None:
        documents = find_packed_sequence_indices(context.position_ids)
    return (None, None) if documents is not None else (found[0], found[1])


def find_unpaddings(
    config: PreTrainedConfig, *sequences: tuple[Any, torch.Tensor | None]
) -> tuple[Unpadding | None, ...]:
    """Find the tokens of everything that a stack reads, if it can do without padding and gains by it.

    Args:
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
    on_flash = backend is flash_attention_forward
    if mode == "never" or not (on_flash or backend is sdpa_attention_forward):
        return nothing
    if on_flash and all(mask is None for mask, _ in sequences):
        return nothing
    unpaddings = []
    for mask, states in sequences:
        unpadding = None
        if states is not None:
            if not (on_flash or states.device.type == "cpu"):  # an accelerator would be waited for
                return nothing
            unpadding = find_tokens(mask, states)
            if unpadding is None:
                return nothing
            if not on_flash and (config.sliding_window or unpadding.seq_len) < unpadding.seq_len:
                return nothing
            if config.is_decoder and any(unpadding.starts):  # padding before a sequence predicts its first token
                return nothing
        unpaddings.append(unpadding)
    if on_flash or mode == "always":  # transformers would unpad for FlashAttention in every layer anew
        return tuple(unpaddings)
    found = [unpadding for unpadding in unpaddings if unpadding is not None]
    saved = sum(unpadding.saved for unpadding in found)
    sequences_in_all = sum(unpadding.batch_size for unpadding in found)
    positions = sum(unpadding.batch_size * unpadding.seq_len for unpadding in found)
    pays = saved * config.hidden_size**2 > GAIN * sequences_in_all and saved >= SHARE * positions
    return tuple(unpaddings) if pays else nothing


def find_tokens(attention_mask: Any, states: torch.Tensor) -> Unpadding | None:
    """Find the tokens of one batch of sequences.

    Args:
        attention_mask: 1 for real tokens, *Shape:* (batch_size, seq_len); None for no padding; or another mask.
        states: *Shape:* (batch_size, seq_len, hidden_size)

    Returns:
        Where they are; None where that cannot be told.
    """
    if attention_mask is None:
        batch_size, seq_len = states.shape[:2]
        return Unpadding.full(batch_size, seq_len, states.device)
    is_padding_mask = isinstance(attention_mask, torch.Tensor) and attention_mask.shape == states.shape[:2]
    return Unpadding.of(attention_mask) if is_padding_mask else None
