"""Attention sinks: a learned logit that a query may attend to instead of any key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from ..attention import Attention, Mixed

if TYPE_CHECKING:
    from ..configuration import ZooConfig


class SinkAttention(Attention):
    """Attention with one more logit a head in the softmax, whose weight goes nowhere (OpenAI 2025, gpt-oss, section 2).

    The weights of a query over the keys therefore sum to less than one. A bound on the scores bounds the sinks as well.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"sinks": "bias"}

    # Others have no place for a further logit, or give no sum of exponentials on a CPU to bring it in afterwards.
    backends = ("sdpa", "eager")
    supports_unpadding = False
    weights_sum_to_one = False

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.sinks = nn.Parameter(torch.empty(config.num_attention_heads))
        self.std = config.initializer_range

    def init_weights(self) -> None:
        """Draw the logits from a normal distribution of the configuration's range."""
        init.normal_(self.sinks, mean=0.0, std=self.std)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        position_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> Mixed:
        """Mix the values. Arguments as in the base class."""
        if attention_mask is None and self.is_causal and query.shape[2] > 1:
            attention_mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()[None, None]
        if attention_mask is not None:
            attention_mask = F.pad(attention_mask, (0, 1), value=1 if attention_mask.dtype == torch.bool else 0)
        if position_bias is not None:
            position_bias = F.pad(position_bias, (0, 1))
        # A key whose only feature is one that queries have the sinks in, and that no other key has; its value is zero.
        # Values get a further feature too, for kernels want them as wide as keys.
        logits = (self.sinks / self.scaling).to(query.dtype).view(1, -1, 1, 1).expand(*query.shape[:3], 1)
        key, value = F.pad(key, (0, 1, 0, 1)), F.pad(value, (0, 1, 0, 1))
        key[..., -1, -1].fill_(1.0)
        query = torch.cat([query, logits], dim=-1)
        mixed, weights = super().attend(query, key, value, attention_mask, position_bias=position_bias, **kwargs)
        return mixed[..., :-1], weights if weights is None else weights[..., :-1]
