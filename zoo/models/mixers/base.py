"""Token mixers that replace self-attention in layers that `layer_types` names."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, LinearAttentionLayer

from zoo.base.errors import ConfigError, InputError
from zoo.fast.preallocated_cache import may_be_written, self_attention_cache
from zoo.fast.unpadding import UnpaddedMask, mix_documents

from ..configuration import ZooConfig
from ..validation import require_own_layers


class Mixer(nn.Module):
    """Base of what mixes tokens otherwise than attention in some layers, called as attention is.

    A mixer is causal, and what it keeps of earlier tokens is a state that does not grow: a cache layer of transformers.

    Args:
        layer_idx: The layer's place in the stack, which is its place in the cache.

    Attributes:
        layer_type: Name of its layers in `layer_types`, in transformers' words "linear_attention" or "conv".
        out_proj: The projection onto the residual stream.
    """

    layer_type: ClassVar[str | None] = None
    out_proj: nn.Linear

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Refuse stacks that see later tokens, and such as have no layer of either kind."""
        given = f"mixer={config.mixer!r} was given"
        if cls.layer_type is None:
            raise ConfigError(f"{given}, whose class {cls.__name__} lacks a layer_type: 'linear_attention' or 'conv'")
        if config.stack != "decoder" or config.add_cross_attention:
            stack = f"an {config.stack}" if config.stack != "decoder" else "a decoder with cross attention"
            raise ConfigError(f"{given} for {stack}; it sees earlier tokens only, so only decoders can have it")
        require_own_layers(config, f"mixer={config.mixer!r}", "they are of two kinds")
        kinds = set(config.types_of_layers())
        if cls.layer_type not in kinds or len(kinds) == 1:
            raise ConfigError(
                f"{given} with layer_types={config.types_of_layers()}; there must be layers of its own, "
                f"{cls.layer_type!r}, and layers with attention, whose cache counts tokens"
            )

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        past_key_values: Cache | None = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Mix tokens with those before them.

        Args:
            hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
            attention_mask: 1 for real tokens, *Shape:* (batch_size, seq_len); None if all are, or if without a cache
                no padding precedes them; for packed documents, where they are: each begins without a state.
            position_bias: Not read.
            past_key_values: Holds what is kept of earlier tokens, changed in place.
            step: The place in the cache; `layer_idx` if not given.
            kwargs: Further arguments of attention; not read.

        Returns:
            The output, *Shape:* as hidden_states, and None in the place of attention weights.
        """
        if isinstance(attention_mask, UnpaddedMask):
            return mix_documents(self.mix, hidden_states, attention_mask), None
        idx = self.layer_idx if step is None else step
        past = None if past_key_values is None else state_layer(past_key_values, idx)
        if attention_mask is None:
            return self.mix(hidden_states, past, None), None
        is_token = attention_mask.bool()
        # The tokens of a row move to its beginning, in their order, and padding after them.
        places = torch.where(is_token, is_token.cumsum(1), is_token.sum(1, keepdim=True) + (~is_token).cumsum(1)) - 1
        places = places.unsqueeze(-1).expand_as(hidden_states)
        tokens = torch.zeros_like(hidden_states).scatter(1, places, hidden_states.masked_fill(~is_token[..., None], 0))
        is_token = is_token.sort(dim=1, descending=True).values
        return self.mix(tokens, past, None if past is None else is_token).gather(1, places), None

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        """Mix tokens with those before them.

        Args:
            hidden_states: The tokens of every row, from its first position on; what follows them is padding.
                *Shape:* (batch_size, seq_len, hidden_size)
            past: The layer of the cache, to be read and changed; None without a cache.
            is_token: Which positions hold tokens; at others the state stays as it was. None if all
                do, or without a cache. *Shape:* (batch_size, seq_len)

        Returns:
            *Shape:* as hidden_states.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no mix")


def state_layer(past_key_values: Cache, layer_idx: int) -> LinearAttentionLayer:
    """The layer of a cache that holds the state of a mixer."""
    layers = self_attention_cache(past_key_values).layers
    layer = layers[layer_idx] if layer_idx < len(layers) else None
    if not isinstance(layer, LinearAttentionLayer):
        raise InputError(
            f"past_key_values was given, a {type(past_key_values).__name__} without a state for layer {layer_idx}, "
            "which has no attention; make it by DynamicCache(config=model.config), or give none"
        )
    if not torch.compiler.is_compiling():
        for states in (layer.conv_states, layer.recurrent_states):
            for place, state in states.items():
                if state is not None and not may_be_written(state):
                    states[place] = state.clone()
    return layer


def refuse_layers_without_mixer(layers: Iterable[nn.Module], config: ZooConfig) -> None:
    """Refuse layers of a variant's own that have attention where the configuration asks for something else."""
    for layer, kind in zip(layers, config.types_of_layers(), strict=False):
        if kind == config.mixer_layer_type and not any(isinstance(part, Mixer) for part in layer.children()):
            raise ConfigError(
                f"mixer={config.mixer!r} was given, but variant {config.variant!r} has its own attention in every layer"
            )
