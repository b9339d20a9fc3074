"""Inputs of all layers of a stack in one call apart from hidden states: masks, position biases, and the cache."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    LinearAttentionLayer,
    StaticLayer,
)
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
    find_packed_sequence_indices,
)
from transformers.utils.import_utils import is_tracing

from zoo.base.errors import InputError, enumerate_names
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.fast.unpad_layers import packed_rows
from zoo.fast.unpadding import UnpaddedMask, Unpadding

from .configuration import ZooConfig
from .embedding import Position


def padding_mask(
    config: ZooConfig,
    hidden_states: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor | None = None,
    **cache: Cache | None,
) -> Any:
    """The mask of layers without attention, which carry a state from token to token; `cache` by transformers' name.

    Returns 1 for real tokens, *Shape:* (batch_size, seq_len); the unpadding of documents packed into rows; None if
    every row holds one document from its first position on, and without padding with a cache.
    """
    past_key_values = cache.get(CACHE_NAME)
    if attention_mask is None:
        return separate_documents(hidden_states, position_ids, past_key_values)
    if attention_mask.ndim != 2:
        raise InputError(
            f"an attention_mask of {attention_mask.ndim} dimensions was given, but mixer={config.mixer!r} cannot "
            "choose which earlier tokens a token sees; give 1 for real tokens and 0 for padding, one a token"
        )
    is_token = attention_mask[:, -hidden_states.shape[1] :].bool()
    if is_token.device.type != "cpu" or is_tracing(is_token):  # avoids a device sync
        return is_token
    padding = ~is_token if past_key_values is not None else is_token[:, 1:] > is_token[:, :-1]
    return is_token if padding.any() else None


def separate_documents(
    hidden_states: Tensor, position_ids: Tensor | None, past_key_values: Cache | None
) -> UnpaddedMask | None:
    """The unpadding of documents packed into rows, None if every row holds one. Arguments as for `padding_mask`."""
    # Where a cache is given, as generation does, an accelerator would be waited for in vain.
    looks = hidden_states.shape[1] > 1 and (past_key_values is None or hidden_states.device.type == "cpu")
    documents = find_documents(position_ids) if looks and position_ids is not None else None
    if documents is None:
        return None
    if past_key_values is not None:
        raise packed_into_cache()
    tokens = Unpadding.of_documents(documents.expand(len(hidden_states), -1))
    return UnpaddedMask(tokens, tokens)


def packed_documents(position_ids: Tensor | None) -> Tensor | None:
    """Index of every position's document in its row, which begins where positions do not increase by one; or None."""
    if position_ids is None or position_ids.shape[1] < 2 or position_ids.device.type == "meta":
        return None
    return None if is_tracing(position_ids) else find_packed_sequence_indices(position_ids)


find_documents = torch.compiler.disable(packed_documents, reason="a state restarts where position_ids do")
"""The same outside of a compiled graph, with a graph break."""


def packs_documents(position_ids: Tensor | None, past_key_values: Cache | None, use_cache: bool | None) -> bool:
    """Whether documents are packed into rows, where a decoder needs to know: a cache holds one document a row."""
    # Where a cache is given, as generation does, an accelerator would be waited for in vain.
    looks = use_cache if past_key_values is None else position_ids is not None and position_ids.device.type == "cpu"
    packs = bool(looks) and packed_documents(position_ids) is not None
    if packs and past_key_values is not None:
        raise packed_into_cache()
    return packs


def packed_into_cache() -> InputError:
    """The error of a cache that would hold several documents per row."""
    return InputError(
        "position_ids do not count on within a row, which packs several documents into it, but past_key_values holds "
        "one a row: give no cache, or one document a row, or an attention_mask if some of it is padding"
    )


def rotated_otherwise(seen: int, length: int) -> InputError:
    """The error of a cache with keys that a longer sequence rotates differently."""
    return InputError(
        f"the cache holds {seen} positions, but this rope_type rotates their keys differently in a sequence of "
        f"{length}: give all tokens without the cache, or call generate with all of them, which fills it again"
    )


MASKS = {
    (False, "full_attention"): create_bidirectional_mask,
    (False, "sliding_attention"): create_bidirectional_sliding_window_mask,
    (True, "full_attention"): create_causal_mask,
    (True, "sliding_attention"): create_sliding_window_causal_mask,
}
"""transformers' mask for every pair of causality and layer type; layers of other types have a mixer."""


@dataclass
class Context:
    """Inputs of the layers of a stack in one call, apart from hidden states."""

    # 1 for real tokens, cached ones included, *Shape:* (batch_size, key_len); finished masks, also by layer type; None
    attention_mask: Any
    position_ids: Any  # None before `place` continues them from the cache. *Shape:* (batch_size or 1, seq_len)
    past_key_values: Cache | None  # Keys and values of earlier positions, extended by the layers
    # Input of cross attention. *Shape:* (batch_size, source_len, hidden_size)
    encoder_hidden_states: Tensor | None = None
    encoder_attention_mask: Any = None  # 1 for real source tokens. *Shape:* (batch_size, source_len)
    token_ids: Tensor | None = None  # None if their embeddings were given. *Shape:* (batch_size, seq_len)
    is_token: Tensor | None = None  # 1 for tokens, by labels where there is no mask. *Shape:* (batch_size, seq_len)
    # Position biases by layer type. *Shape:* (batch_size, num_attention_heads, seq_len, key_len)
    biases: dict[str | None, Tensor | None] = field(default_factory=dict)
    # Positions that the caller gave, from `place` on; others need no search for packed documents (a device sync)
    given_positions: Any = None
    cache: Cache | None = None  # The part of past_key_values for self-attention, from `place` on

    def place(self, inputs_embeds: Tensor, position: Position, *, pages: bool = False) -> None:
        """Continue positions from the cache unless they are given, and refuse positions that cannot be encoded."""
        self.cache = getattr(self.past_key_values, "self_attention_cache", self.past_key_values)
        seen, length = 0 if self.cache is None else self.cache.get_seq_length(), None
        if not isinstance(seen, Tensor):  # a static cache counts on its device
            length = seen + inputs_embeds.shape[1]
            if position.max_length is None or length > position.max_length:
                position.check(length, self.position_ids)
            if seen and not is_tracing(inputs_embeds) and position.outgrows_cache(self.attention_mask, seen, length):
                raise rotated_otherwise(seen, length)
        mask, usual = self.attention_mask, (inputs_embeds.shape[0], length)
        if mask is not None and (is_tracing(mask) or getattr(mask, "shape", None) != usual or mask.is_floating_point()):
            self.attention_mask = readable_mask(mask, inputs_embeds, seen, inputs_embeds, self.is_first and not pages)
        self.given_positions = given = self.position_ids
        tokens = mask if mask is None or getattr(mask, "ndim", 0) == 2 else self.is_token  # labels place nothing
        if given is None:
            self.position_ids = position.count(inputs_embeds, tokens, seen)
        elif tokens is not None and not position.counts_padding:  # padding has the position of the token before it
            is_token = tokens[:, -given.shape[1] :].bool()
            self.position_ids = given.where(is_token, (given * is_token).cummax(dim=1).values)

    @property
    def is_first(self) -> bool:
        """Whether there is no cache, or a growing one that is still empty."""
        layers = [] if self.cache is None else self.cache.layers
        grows = all(isinstance(layer, (DynamicLayer, LinearAttentionLayer)) for layer in layers)
        return self.cache is None or (grows and self.cache.get_seq_length() == 0)

    def source(self, config: ZooConfig, hidden_states: Tensor) -> tuple[Tensor | None, Any]:
        """Input of cross attention, (batch_size, source_len, hidden_size), and its mask for the backend or None."""
        states: Any = self.encoder_hidden_states
        mask = self.encoder_attention_mask
        if not isinstance(mask, UnpaddedMask):
            mask = mask if mask is None else readable_mask(mask, states, 0, hidden_states, True)
            mask = create_bidirectional_mask(config, hidden_states, mask, encoder_hidden_states=states)
        return states, mask


@dataclass
class EarlierLayers:
    """Tensors that layers keep for later ones within a call; no dictionary, which hooks of accelerate and FSDP copy."""

    token_ids: Tensor | None = None  # None if their embeddings were given. *Shape:* (batch_size, seq_len)
    is_token: Tensor | None = None  # 1 for tokens, 0 for padding; None if all are. *Shape:* (batch_size, seq_len)
    kept: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def keep(self, name: str, *tensors: Tensor) -> None:
        self.kept[name] = tensors

    def read(self, name: str, device: torch.device) -> tuple[Tensor, ...]:
        """Read a tensor of an earlier layer, on this device."""
        return tuple(tensor.to(device) for tensor in self.kept[name])


def readable_mask(mask: Any, states: Tensor, seen: int | Tensor, queries: Tensor, has_all_keys: bool) -> Any:
    """A given mask in a form that every backend reads; InputError for another shape, and for 2 dimensions below 0.

    Masks of queries and keys are boolean, or added to the scores and of the dtype of the states; integers are 1 for
    visible keys. Padding masks have a column for each of the `seen` cached positions, too, but not those by layer type
    of layers without attention.
    """
    if isinstance(mask, dict):
        sizes = {kind: seen if (True, kind) in MASKS else 0 for kind in mask}
        return {kind: readable_mask(one, states, sizes[kind], queries, has_all_keys) for kind, one in mask.items()}
    if not isinstance(mask, Tensor):
        return mask
    (rows, length), shape = queries.shape[:2], tuple(mask.shape)
    valid = ((1, rows, states.shape[0]), shape[1:2], (1, length), (1, states.shape[1]) if has_all_keys else shape[-1:])
    if mask.ndim == 4 and (is_tracing(mask) or all(n in sizes for n, sizes in zip(shape, valid, strict=True))):
        if not mask.is_floating_point():
            return mask.bool()
        return mask if mask.dtype == states.dtype else mask.to(states.dtype).clamp(min=torch.finfo(states.dtype).min)
    if mask.ndim != 2:
        raise InputError(
            f"an attention_mask of the shape {shape} was given for {rows} rows of {length} positions; valid: "
            "(batch_size, key_len), 1 for real tokens and 0 for padding, or (batch_size, 1 or num_attention_heads, "
            "query_len, key_len), True for visible keys or added to the scores"
        )
    rows, total = states.shape[0], seen + states.shape[1]
    fits = mask.shape[1] >= total if is_tracing(mask) else mask.shape == (rows, total)
    if not (isinstance(seen, Tensor) or fits):
        raise InputError(
            f"the (decoder's) attention_mask, given or made of the token ids, covers {mask.shape[1]} positions of "
            f"{mask.shape[0]} rows, but the cache and the input make {total} of {rows}: give a mask for all of them, "
            "or use_cache=False"
        )
    if mask.is_floating_point() and not is_tracing(mask) and (mask < 0).any():
        raise InputError(
            "an attention_mask of 2 dimensions with values below 0 was given, as masks have that are added to scores; "
            "valid: 1 for real tokens and 0 for padding, here (attention_mask == 0).long()"
        )
    return mask


def self_attention_masks(config: ZooConfig, states: Tensor, context: Context, layer_types: list[str]) -> dict[str, Any]:
    """Mask of self-attention for every layer type, in the backend's form; None if only causality masks."""
    if (mask := context.attention_mask) is None and context.given_positions is not None:
        mask = packed_rows(config, context)
    masks = masks_by_type(mask, layer_types) if isinstance(mask, dict) else dict.fromkeys(layer_types, mask)
    if isinstance(mask, UnpaddedMask):
        return masks
    options: dict[str, Any] = {CACHE_NAME: context.cache}
    if is_causal := config.is_decoder:
        options["position_ids"] = context.given_positions
        if context.given_positions is not None and context.is_first and is_tracing(states):
            options[CACHE_NAME] = None  # with any cache, transformers does not separate documents
    return {kind: MASKS.get((is_causal, kind), padding_mask)(config, states, masks[kind], **options) for kind in masks}


def masks_by_type(masks: dict[str, Any], layer_types: list[str]) -> dict[str, Any]:
    """The mask of every layer type; InputError where there is none."""
    if missing := set(layer_types) - masks.keys():
        raise InputError(
            f"the attention_mask has none for layers of the type {enumerate_names(sorted(missing))}; "
            f"give one for each of {enumerate_names(dict.fromkeys(layer_types))}"
        )
    return {kind: masks[kind] for kind in layer_types}


def position_biases(
    layer_types: list[str | None], position: Position, inputs_embeds: Tensor, cache: Cache | None
) -> dict[str | None, Tensor | None]:
    """Position bias of every layer type. *Shape:* (batch_size, num_attention_heads, seq_len, key_len)."""
    batch_size, seq_len = inputs_embeds.shape[:2]
    positions = torch.arange(seq_len, device=inputs_embeds.device)
    biases: dict[str | None, Tensor | None] = {}
    for layer_type in dict.fromkeys(filter(None, layer_types)):
        seen, key_len, key_offset = 0, seq_len, 0
        if cache is not None:
            layer_idx = layer_types.index(layer_type)
            seen = cache.get_seq_length(layer_idx)
            key_len, key_offset = cache.get_mask_sizes(seq_len, layer_idx)
        keys = torch.arange(key_len, device=inputs_embeds.device) + key_offset
        bias = position.bias(positions + seen, keys)
        biases[layer_type] = None if bias is None else bias.to(inputs_embeds.dtype).expand(batch_size, -1, -1, -1)
    return biases


def check_positions(position_ids: Tensor, inputs_embeds: Tensor) -> None:
    """Refuse positions that are not one for each token."""
    rows, length = inputs_embeds.shape[:2]
    if not is_tracing(inputs_embeds) and tuple(position_ids.shape) not in ((rows, length), (1, length)):
        raise InputError(
            f"position_ids of the shape {tuple(position_ids.shape)} were given for {rows} rows of {length} tokens; "
            "valid: (batch_size or 1, seq_len)"
        )


def check_boundaries(config: ZooConfig, states: Tensor, context: Context, cu_seq_lens: Tensor) -> None:
    """Refuse boundaries of documents, read by FlashAttention alone, that this call would not keep."""
    ids = context.position_ids
    if is_tracing(states) or (ids is not None and "flash" in str(config._attn_implementation)):
        return  # a comparison waits for the device
    documents = packed_documents(ids) if config.is_decoder and context.attention_mask is None else None
    documents = torch.zeros(1, states.shape[1]) if documents is None else documents
    begins = F.pad(documents.diff() != 0, (1, 0), value=True).expand(states.shape[:2])
    if begins.flatten().nonzero().flatten().tolist() != cu_seq_lens[:-1].tolist():
        way = "give position_ids that begin again with each document, and no attention_mask"
        raise InputError(
            f"documents bounded by cu_seq_lens_q={cu_seq_lens.tolist()} would not be kept separate; "
            f"{way if config.is_decoder else 'an encoder does so with FlashAttention alone'}"
        )


def check_distances(context: Context, layer_types: list[str], is_decoder: bool) -> None:
    """Refuse given positions that contradict position biases, computed from places; packed documents see their own."""
    ids, mask, cache = context.given_positions, context.attention_mask, context.cache
    if ids is None or ids.shape[1] == 1 or (mask is None and is_decoder) or is_tracing(ids):
        return
    if ids.device.type != "cpu" and (cache is not None or ids.device.type == "meta"):  # avoids a sync in generation
        return
    seq_len = ids.shape[1]
    moved = ids - torch.arange(seq_len, device=ids.device)
    wrong = moved[:, None, :, None] != moved[:, None, None]
    masks = {layer_types[0]: mask}
    if isinstance(mask, dict):  # layers without attention have no distances
        masks = {kind: mask[kind] for kind in layer_types if kind in mask and (is_decoder, kind) in MASKS}
    layers = [(one, layer_types.index(kind)) for kind, one in masks.items()]
    if any((wrong & visible_places(one, seq_len, cache, layer)).any() for one, layer in layers):
        raise InputError(
            "position_ids were given that do not count on by one within what a token sees, and this model's positions "
            "are distances of places in a row: leave position_ids out, or build the model with position='rotary'"
        )


def visible_places(mask: Any, seq_len: int, cache: Cache | None, layer_idx: int) -> Tensor | bool:
    """Which places of the input see which, (batch_size, heads, seq_len, seq_len), or all or none of them."""
    if not isinstance(mask, Tensor):
        return mask is None
    if mask.ndim == 2:
        is_token = mask[:, None, -seq_len:].bool()
        return is_token[..., None] & is_token[..., None, :]
    first = 0 if cache is None else cache.get_seq_length() - cache.get_mask_sizes(seq_len, layer_idx)[1]
    own = mask[..., first : first + seq_len]
    return own == 0 if own.is_floating_point() else own.bool()


def new_cache(config: ZooConfig, *, has_source: bool) -> Cache:
    alike = config.sliding_window is None and getattr(config, "layer_types", None) is None
    cache = DynamicCache() if alike else prepare_cache(DynamicCache(config=config))
    return EncoderDecoderCache(cache, DynamicCache()) if has_source else cache


def cache_of_either_name(past_key_values: Cache | None, options: dict[str, Any]) -> Cache | None:
    """The cache by transformers' former name or, taken out of a forward's `options`, by that of 5.24.

    Pages of continuous batching stay among the options, for attention.
    """
    if not isinstance(options["cache"], Cache | None):
        return past_key_values
    cache = options.pop("cache")
    if None not in (past_key_values, cache) and past_key_values is not cache:
        raise InputError(
            "cache and past_key_values are two names of one argument, and each was given another; give one"
        )
    return past_key_values if cache is None else cache


def prepare_cache(past_key_values: Cache, source_len: int = 0) -> Cache:
    """Adapt transformers' cache layers to the attention before a forward reads and extends them.

    transformers makes both halves of an encoder-decoder's cache by one configuration, so cross attention would forget
    the beginning of a source longer than the window of self-attention. A layer with a window of one position, which the
    next query does not see, keeps all of them. Sources computed in inference mode cannot take part in autograd.
    """
    is_pair = isinstance(past_key_values, EncoderDecoderCache)
    own = (past_key_values.self_attention_cache if is_pair else past_key_values).layers
    for layer_idx, layer in enumerate(own):
        if isinstance(layer, DynamicSlidingWindowLayer) and layer.sliding_window == 1 and not layer.is_initialized:
            own[layer_idx] = DynamicLayer()
    if not is_pair:
        return past_key_values
    records = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    sources = past_key_values.cross_attention_cache.layers
    for layer_idx, layer in enumerate(sources):
        if past_key_values.is_updated.get(layer_idx):
            if records and layer.keys.is_inference():
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
        elif getattr(layer, "is_sliding", False):
            sources[layer_idx] = StaticLayer(source_len) if isinstance(layer, StaticLayer) else DynamicLayer()
    return past_key_values
