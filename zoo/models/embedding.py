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


class TokenTypeEmbedding(nn.Embedding):
    """A vector for every token type, added to the tokens' own (BERT's segments: first and second sentence).

    Args:
        num_embeddings: Number of types.
        config: Supplies `hidden_size`.
    """

    def __init__(self, num_embeddings: int, config: ZooConfig) -> None:
        super().__init__(num_embeddings, config.hidden_size)

    def forward(self, inputs_embeds: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Add the vectors of the types.

        Args:
            inputs_embeds: *Shape:* (batch_size, seq_len, hidden_size)
            token_type_ids: All 0 if not given. *Shape:* (batch_size, seq_len)

        Returns:
            *Shape:* as inputs_embeds.

        Raises:
            TokenIdError: When there is no such type (checked on the CPU, outside of compiled code).
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long, device=inputs_embeds.device)
        try:
            return inputs_embeds + super().forward(token_type_ids)
        except IndexError:
            check_token_ids(token_type_ids, self.num_embeddings, kind="token type")
            raise


def check_token_ids(token_ids: torch.Tensor, num_embeddings: int, kind: str = "token id") -> None:
    """Name an id outside of the vocabulary, which the lookup does not.

    Args:
        token_ids: *Shape:* any
        num_embeddings: Number of valid ids.
        kind: What the ids are, for the message.

    Raises:
        TokenIdError: Naming the first wrong id and where it stands.
    """
    wrong = (token_ids < 0) | (token_ids >= num_embeddings)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise TokenIdError(
            f"{kind} {int(token_ids[place])} at position {place} is outside of the vocabulary; "
            f"valid ids are 0 to {num_embeddings - 1}"
        )
