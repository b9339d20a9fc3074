"""Attention sinks: a learned logit in the softmax in addition to the keys."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from ..attention import Attention, Mixed
from ..configuration import ZooConfig


class SinkAttention(Attention):
    """Attention with one learned logit per head in the softmax, without a value (OpenAI 2025, gpt-oss, section 2).

    The weights of a query over the keys therefore sum to less than one. A bound on the scores also applies to the
    sinks.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"sinks": "bias"}

    # Other backends have no place for another logit, or return no log-sum-exp on a CPU to add it afterwards.
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
        """Mix the values, with the sink in the softmax."""
        if attention_mask is None and self.is_causal and query.shape[2] > 1:
            attention_mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()[None, None]
        if attention_mask is not None:
            attention_mask = F.pad(attention_mask, (0, 1), value=1 if attention_mask.dtype == torch.bool else 0)
        if position_bias is not None:
            position_bias = F.pad(position_bias, (0, 1))
        # The sink is a key with one extra feature, which queries hold the logit in and all other keys have as zero; its
        # value is zero. Values get an extra feature too, because kernels need them as wide as keys.
        logits = (self.sinks / self.scaling).to(query.dtype).view(1, -1, 1, 1).expand(*query.shape[:3], 1)
        key, value = F.pad(key, (0, 1, 0, 1)), F.pad(value, (0, 1, 0, 1))
        key[..., -1, -1].fill_(1.0)
        query = torch.cat([query, logits], dim=-1)
        mixed, weights = super().attend(query, key, value, attention_mask, position_bias=position_bias, **kwargs)
        return mixed[..., :-1], weights if weights is None else weights[..., :-1]
