"""Token embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from zoo.errors import TokenIdError

if TYPE_CHECKING:
    from .configuration import ZooConfig


class TokenEmbedding(nn.Embedding):
    """A vector for every token id, multiplied by sqrt(hidden_size) if the configuration says so.

    Args:
        num_embeddings: Number of token ids.
        config: Supplies `hidden_size` and `scale_embedding`.
    """

    def __init__(self, num_embeddings: int, config: ZooConfig) -> None:
        super().__init__(num_embeddings, config.hidden_size)
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding else 1.0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Look vectors up.

        Args:
            input: Token ids. *Shape:* (batch_size, seq_len)

        Returns:
            *Shape:* (batch_size, seq_len, hidden_size)

        Raises:
            TokenIdError: When an id is not in the vocabulary (checked on the CPU, outside of compiled code).
        """
        try:
            embedded = super().forward(input)
        except IndexError:
            check_token_ids(input, self.num_embeddings)
            raise
        return embedded if self.embed_scale == 1.0 else embedded * self.embed_scale


def check_token_ids(token_ids: torch.Tensor, num_embeddings: int) -> None:
    """Name an id outside of the vocabulary, which the lookup does not.

    Args:
        token_ids: *Shape:* any
        num_embeddings: Number of valid ids.

    Raises:
        TokenIdError: Naming the first wrong id and where it stands.
    """
    wrong = (token_ids < 0) | (token_ids >= num_embeddings)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise TokenIdError(
            f"token id {int(token_ids[place])} at position {place} is outside of the vocabulary; "
            f"valid ids are 0 to {num_embeddings - 1}"
        )
