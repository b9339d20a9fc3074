"""Unpad once at a stack's entry, so that layers run on the tokens of a batch in one row."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import find_packed_sequence_indices
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .chunked_loss import up_to_last_label
from .matmul import fast_matmul
from .modules import is_traced, is_watched
from .switches import current
from .unpadding import UnpaddedMask, Unpadding, computes

GAIN = 150_000
"""Unpadding pays if it saves more than this per sequence of a layer's token-wise work, in tokens times hidden_size
squared: 9 tokens at a hidden size of 128. Measured on two cores of a Xeon, like SHORT and SHARE."""

SHARE = 0.125  # Least share of padding among the positions


def run_without_padding(stack: Any, config: Any, hidden_states: Tensor, context: Any, **kwargs: Any) -> Tensor:
    """Run the layers of a stack on unpadded tokens if that is faster and unobservable.

    Without padding rounding is another, so that inference may multiply by another library, too.
    """
    tokens, source = unpaddings(stack, config, hidden_states, context, **kwargs)
    if tokens is None:
        return stack.run_layers(config, hidden_states, context, **kwargs)
    changes = {"attention_mask": UnpaddedMask(tokens, tokens), "position_ids": tokens.unpad(context.position_ids)}
    changes["is_token"] = None
    if context.token_ids is not None:
        changes["token_ids"] = tokens.unpad(context.token_ids)
    if source is not None:
        changes["encoder_hidden_states"] = source.unpad(context.encoder_hidden_states)
        changes["encoder_attention_mask"] = UnpaddedMask(tokens, source)
    context = replace(context, **changes)
    with nullcontext() if torch.is_grad_enabled() else fast_matmul(hidden_states.device):
        return tokens.pad(stack.run_layers(config, tokens.unpad(hidden_states), context, **kwargs))


def unpaddings(
    stack: Any,
    config: Any,
    hidden_states: Tensor,
    context: Any,
    *,
    output_hidden_states: bool | None = None,
    output_router_logits: bool | None = None,
    **kwargs: Any,
) -> tuple[Unpadding | None, Unpadding | None]:
    """Unpaddings of the input and of the cross-attention input, if the layers are to run without padding, or None."""
    records = stack.config.output_hidden_states if output_hidden_states is None else output_hidden_states
    records = records or output_router_logits or getattr(stack.config, "output_router_logits", False)
    if records or is_traced():
        return None, None
    source = (context.encoder_attention_mask, context.encoder_hidden_states)
    drops = bool(stack.training and config.attention_dropout)
    # Whether attention takes the lengths of sequences in one call, windows or not.
    backend = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)  # a user may have registered another sdpa
    by_length = backend is flash_attention_forward
    if backend is sdpa_attention_forward:
        by_length = computes(config, hidden_states, drops=drops, has_bias=bool(context.biases))
    found = find_unpaddings(config, (context.attention_mask, hidden_states), source, by_length=by_length)
    parts = (part for built in (stack.embedding_projection, stack.layers, stack.norm) for part in built.modules())
    if found is None or any(is_watched(part) or type(part) not in stack.built_of for part in parts):
        return None, None
    documents = None
    if config.is_decoder and context.attention_mask is None and context.given_positions is not None:
        documents = find_packed_sequence_indices(context.given_positions)
    return found if documents is None else (None, None)


def packed_rows(config: PreTrainedConfig, context: Any) -> UnpaddedMask | None:
    """A mask that separates documents packed into several rows on FlashAttention, as transformers does one row's."""
    position_ids = context.given_positions
    if not config.is_decoder or context.cache is not None or len(position_ids) == 1 or is_traced():
        return None
    if ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation) is not flash_attention_forward:
        return None
    if (documents := find_packed_sequence_indices(position_ids)) is None:
        return None
    tokens = Unpadding.of_documents(documents)
    return UnpaddedMask(tokens, tokens)


def mask_to_last_label(stack: Any, labels: Tensor) -> Tensor | None:
    """A decoder's mask, 1 up to each row's last label; None on accelerators (a sync) and if it would remove little."""
    if is_traced() or current().unpadding == "never" or not stack.can_unpad or labels.device.type != "cpu":
        return None
    mask = up_to_last_label(labels)
    mask[:, 0] = 1
    return mask if mask.sum() <= (1 - SHARE) * mask.numel() else None


def projected_positions(mask: Tensor | None, head: Iterable[nn.Module]) -> Unpadding | None:
    """Positions to project onto the vocabulary by such a mask; None for all, also if the modules have hooks."""
    if mask is None or any(is_watched(part) for module in head for part in module.modules()):
        return None
    return Unpadding.of(mask)


def find_unpaddings(
    config: PreTrainedConfig, *sequences: tuple[Any, Tensor | None], by_length: bool
) -> tuple[Unpadding | None, Unpadding | None] | None:
    """The tokens of a stack's two inputs, each a mask and states or None, if running without padding gains time."""
    mode = current().unpadding
    on_sdpa = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation) is sdpa_attention_forward
    if mode == "never" or not (by_length or on_sdpa):
        return None
    if all(mask is None for mask, _ in sequences) and (by_length or mode != "always"):
        return None
    unpaddings = []
    for mask, states in sequences:
        unpadding = None
        if states is not None:
            if not (by_length or states.device.type == "cpu"):  # an accelerator would need a device sync
                return None
            unpadding = find_tokens(mask, states)
            if unpadding is None:
                return None
            if not by_length and (config.sliding_window or unpadding.seq_len) < unpadding.seq_len:
                return None
            if config.is_decoder and any(unpadding.starts):  # padding before a sequence predicts its first token
                return None
        unpaddings.append(unpadding)
    own, source = unpaddings
    if by_length or mode == "always":  # otherwise masks are built and every layer unpads again
        return own, source
    found = [unpadding for unpadding in unpaddings if unpadding is not None]
    saved = sum(unpadding.saved for unpadding in found)
    sequences_in_all = sum(unpadding.batch_size for unpadding in found)
    positions = sum(unpadding.batch_size * unpadding.seq_len for unpadding in found)
    pays = saved * config.hidden_size**2 > GAIN * sequences_in_all and saved >= SHARE * positions
    return (own, source) if pays else None


def find_tokens(attention_mask: Any, states: Tensor) -> Unpadding | None:
    """The tokens of a batch; None for masks that are not (batch_size, seq_len)."""
    if attention_mask is None:
        batch_size, seq_len = states.shape[:2]
        return Unpadding.full(batch_size, seq_len, states.device)
    is_padding_mask = isinstance(attention_mask, Tensor) and attention_mask.shape == states.shape[:2]
    return Unpadding.of(attention_mask) if is_padding_mask else None
