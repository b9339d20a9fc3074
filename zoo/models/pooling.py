"""Poolings: from one vector a token to one vector a sequence."""

import torch
from torch import Tensor

from .choices import Pooling


def pool_first(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The vector of the first real token (BERT's [CLS]). *Shape:* (batch_size, hidden_size)."""
    if attention_mask is None:
        return hidden_states[:, 0]
    first = attention_mask.long().argmax(dim=1)
    return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]


def pool_last(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The last real token's vector, with padding on either side. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states[:, -1]
    return pool_first(hidden_states, attention_mask.long().cumsum(dim=1))  # largest from the last real token on


def pool_mean(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean over real tokens. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    weights = attention_mask.float()  # in half precision the sum of long sequences is infinite
    total = (hidden_states * weights[..., None]).sum(dim=1)
    return (total / weights.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden_states.dtype)


def pool_max(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The elementwise maximum over real tokens, zero without any. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states.amax(dim=1)
    is_padding = attention_mask[..., None] == 0
    lowest = torch.finfo(hidden_states.dtype).min
    return hidden_states.masked_fill(is_padding, lowest).amax(dim=1).masked_fill(is_padding.all(dim=1), 0.0)


POOLERS = {Pooling.CLS: pool_first, Pooling.LAST: pool_last, Pooling.MEAN: pool_mean, Pooling.MAX: pool_max}
"""The function of every pooling."""
