"""Position encodings that add a term to the attention scores."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError

from .configuration import ZooConfig
from .embedding import Position
from .widths import vector_width


class AlibiPosition(Position):
    """Attention with linear biases: each head subtracts its slope times the distance (Press et al. 2021).

    In a stack that sees both directions the distance is taken without its sign.
    """

    has_bias = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.num_heads = config.num_attention_heads

    def slopes(self, device: torch.device) -> Tensor:
        """2^(-8/n), 2^(-16/n), ... for n heads; every other slope of 2n heads if n is no power of two."""
        power = 2 ** math.floor(math.log2(self.num_heads))
        regular = torch.arange(1, power + 1, dtype=torch.float32, device=device)
        between = torch.arange(self.num_heads - power, dtype=torch.float32, device=device) + 0.5
        return 2 ** (-8 / power * torch.cat([regular, between]))

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Minus slope times distance."""
        distance = (query_positions[:, None] - key_positions[None, :]).abs()
        return (-self.slopes(distance.device)[:, None, None] * distance)[None]


class RelativeBucketPosition(Position):
    """A learned scalar for every head and bucket of distances (Raffel et al. 2020, T5, section 2.1).

    Half of the buckets hold one distance each, the other half grow logarithmically up to the largest distance. A stack
    that sees both directions spends half of the buckets on either side. One table serves every layer of the stack.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "table"}

    has_bias = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.bidirectional = not config.is_decoder
        exact = config.relative_attention_num_buckets // (4 if self.bidirectional else 2)
        if not 1 <= exact < config.relative_attention_max_distance:
            raise ConfigError(
                f"relative_attention_num_buckets={config.relative_attention_num_buckets} was given with "
                f"relative_attention_max_distance={config.relative_attention_max_distance}; there must be at least "
                f"{4 if self.bidirectional else 2} buckets, and the distance must be more than {exact}"
            )
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.std = vector_width(config) ** -0.5
        self.weight = nn.Parameter(torch.empty(self.num_buckets, config.num_attention_heads))

    def init_weights(self) -> None:
        """Draw the table as T5 does, with standard deviation hidden_size^-0.5."""
        init.normal_(self.weight, mean=0.0, std=self.std)

    def bucket(self, distance: Tensor) -> Tensor:
        """Bucket numbers of signed distances, key position minus query position. *Shape:* any, unchanged."""
        buckets_a_side = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        offset = (distance > 0).long() * buckets_a_side if self.bidirectional else 0
        distance = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        # Half of the buckets of a side are single distances, the others grow logarithmically up to max_distance.
        exact = buckets_a_side // 2
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        logarithmic = (exact + (growth * (buckets_a_side - exact)).long()).clamp(max=buckets_a_side - 1)
        return offset + torch.where(distance < exact, distance, logarithmic)

    def forward(self, distance: Tensor) -> Tensor:
        """Biases, (1, num_attention_heads, query_len, key_len), of key minus query positions, (query_len, key_len)."""
        return F.embedding(self.bucket(distance), self.weight).permute(2, 0, 1)[None]

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return self(key_positions[None, :] - query_positions[:, None])
