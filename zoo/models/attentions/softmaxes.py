"""Attentions with another softmax: the difference of two, or with a learned logit in addition to the keys."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError

from ..attention import Attention, Mixed
from ..configuration import ZooConfig

LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


class DifferentialAttention(Attention):
    """Attention with the difference of two softmaxes per pair of heads (Ye et al. 2024, section 2.1).

    Head i of the first half of heads is paired with head i of the second half: both mix the values of both, the second
    is subtracted with a learned factor, and the difference is normalized. Attention weights are those of each softmax.
    """

    head_multiple = 2

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer_idx)
        for name in LAMBDAS:
            self.register_parameter(name, nn.Parameter(torch.empty(self.head_dim)))
        self.norm = nn.RMSNorm(2 * self.head_dim, eps=config.layer_norm_eps, elementwise_affine=False)

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require an even number of heads and no attention dropout, which the paper does not define."""
        grouped = config.num_key_value_heads != config.num_attention_heads
        of_decoder = 0 if grouped else config.decoder_attention_heads or 0
        if config.num_key_value_heads % cls.head_multiple or of_decoder % cls.head_multiple or config.attention_dropout:
            raise ConfigError(
                f"attention='differential' was given with num_key_value_heads={config.num_key_value_heads} and "
                f"attention_dropout={config.attention_dropout}; heads must be pairs, and no weight may be dropped"
            )

    def init_weights(self) -> None:
        """Draw the vectors that the factor is computed from, as the authors do."""
        for name in LAMBDAS:
            init.normal_(self.get_parameter(name), mean=0.0, std=0.1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        # Two calls, because the fast kernels need values as wide as keys.
        mixed, weights = zip(
            *(
                super(DifferentialAttention, self).attend(query, key, half.repeat(1, 2, 1, 1), attention_mask, **kwargs)
                for half in value.chunk(2, dim=1)
            ),
            strict=True,
        )
        first, second = torch.cat(mixed, dim=-1).chunk(2, dim=2)
        difference = first - self.factor().to(first.dtype) * second
        return (1 - self.lambda_init) * self.norm(difference), weights[0]

    def factor(self) -> Tensor:
        """The factor of the second softmax (equation 2), a scalar."""
        q1, k1, q2, k2 = (getattr(self, name) for name in LAMBDAS)  # a replica's are no parameters
        return torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + self.lambda_init


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
