"""Position encodings: how a stack knows where a token stands.

A position part may act in three places, each a method that does nothing unless overridden: on the embeddings
(`embed`), on queries and keys (`rotation` and `rotate`), and on the attention scores (`bias`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.errors import InputError, SequenceTooLongError

from .parts import POSITIONS

if TYPE_CHECKING:
    from .configuration import ZooConfig

Rotation = tuple[torch.Tensor, torch.Tensor]
"""What a rotary part hands to attention: cosines and sines, each (batch_size, seq_len, rotary_dim)."""


class Position(nn.Module):
    """Base of all position encodings; by itself it encodes nothing.

    An encoding that has parameters reads them in its `forward`, which the methods below call: offloading brings weights
    to the device when a module is called, and not before.

    Args:
        config: The configuration of the stack; subclasses read what they need.

    Attributes:
        max_length: Longest sequence the encoding can place, None when there is no limit.
        has_bias: Whether `bias` returns a tensor.
        uses_rope_parameters: Whether the part reads `config.rope_parameters`.
    """

    max_length: int | None = None
    has_bias: bool = False
    uses_rope_parameters: bool = False

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()

    def check_length(self, length: int) -> None:
        """Refuse sequences that the encoding cannot place.

        Args:
            length: Number of positions needed, cached ones included.

        Raises:
            SequenceTooLongError: When `length` exceeds `max_length`.
        """
        if self.max_length is not None and length > self.max_length:
            raise SequenceTooLongError(
                f"a sequence of {length} positions was given, but this model has max_position_embeddings="
                f"{self.max_length}: shorten the input or build the model with a larger table"
            )

    def count(
        self, inputs_embeds: torch.Tensor, attention_mask: Any = None, seen: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Number the tokens where the caller does not: 0, 1, ..., on from the cache.

        Args:
            inputs_embeds: *Shape:* (batch_size, seq_len, hidden_size)
            attention_mask: 1 for real tokens, cached ones included, *Shape:* (batch_size, key_len); or any other mask.
            seen: Number of cached positions.

        Returns:
            *Shape:* (batch_size or 1, seq_len)
        """
        return (torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + seen)[None]

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Add the encoding to the token embeddings.

        Args:
            inputs_embeds: *Shape:* (batch_size, seq_len, hidden_size)
            position_ids: *Shape:* (batch_size or 1, seq_len)

        Returns:
            *Shape:* as inputs_embeds.
        """
        return inputs_embeds

    def rotation(self, hidden_states: torch.Tensor, position_ids: torch.Tensor) -> Rotation | None:
        """Compute once a forward what `rotate` needs in every layer.

        Args:
            hidden_states: Gives the dtype and device. *Shape:* (batch_size, seq_len, hidden_size)
            position_ids: *Shape:* (batch_size or 1, seq_len)

        Returns:
            Anything that `rotate` takes, or None.
        """
        return None

    @staticmethod
    def rotate(query: torch.Tensor, key: torch.Tensor, rotation: Rotation) -> Rotation:
        """Encode positions in queries and keys.

        Args:
            query: *Shape:* (batch_size, num_attention_heads, seq_len, head_dim)
            key: *Shape:* (batch_size, num_key_value_heads, seq_len, head_dim)
            rotation: What `rotation` returned.

        Returns:
            The encoded query and key. *Shape:* as given.
        """
        return query, key

    def bias(self, query_positions: torch.Tensor, key_positions: torch.Tensor) -> torch.Tensor | None:
        """Compute the term added to the scores of self-attention.

        Args:
            query_positions: *Shape:* (query_len,)
            key_positions: *Shape:* (key_len,)

        Returns:
            None or *Shape:* (1, num_attention_heads, query_len, key_len)
        """
        return None


POSITIONS.register("none", Position)


@POSITIONS.register("learned")
class LearnedPosition(Position):
    """A trained vector for every position (Gehring et al. 2017; BERT, GPT-2).

    Args:
        config: Supplies `max_position_embeddings`, `hidden_size` and `initializer_range`.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.max_length = config.max_position_embeddings
        self.weight = nn.Parameter(torch.empty(config.max_position_embeddings, config.hidden_size))
        self.initializer_range = config.initializer_range

    def init_weights(self) -> None:
        """Draw the table from a normal distribution of the configuration's range."""
        init.normal_(self.weight, mean=0.0, std=self.initializer_range)

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Look the rows up. *Shape:* (batch_size or 1, seq_len), then (batch_size or 1, seq_len, hidden_size)."""
        return F.embedding(position_ids, self.weight)

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Add the rows of the table. Shapes as in the base class."""
        try:
            return inputs_embeds + self(position_ids)
        except IndexError as error:  # asked for afterwards, as to read positions off before would cost every forward
            self.check_length(int(position_ids.max()) + 1)
            raise InputError(f"position_ids begin at {int(position_ids.min())}; they are counted from 0") from error


@POSITIONS.register("learned-unpadded")
class LearnedUnpaddedPosition(LearnedPosition):
    """A trained vector for every position, of which padding takes none wherever it stands (RoBERTa, OPT).

    Args:
        config: As for [`LearnedPosition`][].
    """

    def count(
        self, inputs_embeds: torch.Tensor, attention_mask: Any = None, seen: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Number the tokens that the mask shows. Arguments as in the base class."""
        if not (isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2):
            return super().count(inputs_embeds, attention_mask, seen)
        numbers = attention_mask.long().cumsum(dim=1) - 1
        return numbers[:, -inputs_embeds.shape[1] :].clamp(min=0)


@POSITIONS.register("sinusoidal", aliases=("sinusoidal-interleaved",))
class SinusoidalPosition(Position):
    """Fixed sines and cosines in alternating columns (Vaswani et al. 2017, section 3.5).

    The table is computed in float32 from the positions asked for, so there is no limit to the length.

    Args:
        config: Supplies `hidden_size` and `sinusoidal_theta`, the paper's 10000.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.width = config.hidden_size
        self.theta = config.sinusoidal_theta

    def phases(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Angles of every position: *Shape:* (batch_size or 1, seq_len, ceil(hidden_size / 2))."""
        # Computed in float32 and not kept: a buffer would lose its precision when the model is cast to bfloat16.
        exponents = torch.arange(0, self.width, 2, dtype=torch.float32, device=position_ids.device) / self.width
        return position_ids[..., None].float() / self.theta**exponents

    def table(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(-2)[..., : self.width]

    def embed(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Add the rows of the table. Shapes as in the base class."""
        return inputs_embeds + self.table(position_ids).to(inputs_embeds.dtype)


@POSITIONS.register("sinusoidal-halves")
class SinusoidalHalvesPosition(SinusoidalPosition):
    """The same sines and cosines, all sines first and all cosines after them (tensor2tensor, Marian)."""

    def table(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.width]
