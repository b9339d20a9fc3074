"""Embeddings of tokens, of their types, and of their positions.

A position part may act in three places, each a method that does nothing unless overridden: on the embeddings (`embed`),
on queries and keys (`rotation` and `rotate`), and on the attention scores (`bias`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import InputError, SequenceTooLongError, TokenIdError

from .configuration import ZooConfig

Rotation = tuple[Tensor, Tensor]
"""Output of a rotary part for attention: cosines and sines, each (batch_size, seq_len, rotary_dim)."""

Rotations = Mapping[str, Rotation | None]  # The rotation of each type of layer


class TokenEmbedding(nn.Embedding):
    """A vector for every token id, multiplied by sqrt(hidden_size) if the configuration scales embeddings."""

    def __init__(self, num_embeddings: int, config: ZooConfig) -> None:
        super().__init__(num_embeddings, config.hidden_size)
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding else 1.0

    def forward(self, input: Tensor) -> Tensor:
        """Vectors of ids: (batch_size, seq_len) -> (batch_size, seq_len, hidden_size).

        Raises:
            TokenIdError: If an id is not in the vocabulary (checked on the CPU, outside of compiled code).
        """
        try:
            embedded = super().forward(input)
        except IndexError:
            check_token_ids(input, self.num_embeddings)
            raise
        return embedded if self.embed_scale == 1.0 else embedded * self.embed_scale


class ValueEmbedding(nn.Embedding):
    """A further vector for every token id, which attention mixes into values."""


class TokenTypeEmbedding(nn.Embedding):
    """A vector for every token type, added to the tokens' own (BERT's segments: first and second sentence)."""

    def __init__(self, num_embeddings: int, config: ZooConfig) -> None:
        super().__init__(num_embeddings, config.hidden_size)

    def forward(self, inputs_embeds: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Add the vectors of the types, (batch_size, seq_len), by default all 0.

        Raises:
            TokenIdError: If the type is unknown (checked on the CPU, outside of compiled code).
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long, device=inputs_embeds.device)
        try:
            return inputs_embeds + super().forward(token_type_ids)
        except IndexError:
            check_token_ids(token_type_ids, self.num_embeddings, kind="token type")
            raise


class Position(nn.Module):
    """No positions at all; the base of all position encodings.

    An encoding with parameters reads them in its `forward`, which the methods below call: offloading loads weights to
    the device only when a module is called.

    Args:
        config: The configuration of the stack; subclasses read what they need.

    Attributes:
        max_length: Longest sequence that can be encoded, None for no limit.
        has_bias: Whether `bias` returns a tensor.
        rotates: Whether the class has a `rotation`.
        uses_rope_parameters: Whether the part reads `config.rope_parameters`.
        rope_layer_types: Layer types with their own settings there; empty if all layers have the same.
        counts_padding: Whether padding counts as positions.
        read_by: Attention parts that read it; empty if all do.
        default_rope_parameters: Their default.
    """

    max_length: int | None = None
    has_bias: bool = False
    rotates: ClassVar[bool] = False
    uses_rope_parameters: bool = False
    rope_layer_types: tuple[str, ...] = ()
    counts_padding: bool = True
    read_by: tuple[str, ...] = ()
    default_rope_parameters: ClassVar[dict[str, Any]] = {"rope_type": "default", "rope_theta": 10000.0}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.rotates = cls.rotation is not Position.rotation or cls.rotations is not Position.rotations

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()

    def check(self, length: int, position_ids: Tensor | None = None) -> None:
        """Refuse positions that the encoding does not support; called for lengths above `max_length`.

        Args:
            length: Number of positions needed, cached ones included.
            position_ids: The given positions, if any; with packed or padded sequences they are fewer.

        Raises:
            SequenceTooLongError: If more than `max_length` are needed.
        """
        if self.max_length is None or length <= self.max_length:
            return
        if position_ids is not None:
            length = 0 if torch.compiler.is_compiling() else int(position_ids.max()) + 1
        if length > self.max_length:
            raise SequenceTooLongError(
                f"a sequence of {length} positions was given, but this model has max_position_embeddings="
                f"{self.max_length}: shorten the input or build the model with a larger table"
            )

    def count(self, inputs_embeds: Tensor, attention_mask: Tensor | None = None, seen: int | Tensor = 0) -> Tensor:
        """Positions if the caller gives none, (batch_size or 1, seq_len): 0, 1, ..., continued from the cache.

        Args:
            attention_mask: 1 for real tokens, cached ones included. *Shape:* (batch_size, key_len)
            seen: Number of cached positions.
        """
        if self.counts_padding or attention_mask is None:
            return (torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + seen)[None]
        return (attention_mask.long().cumsum(dim=1) - 1)[:, -inputs_embeds.shape[1] :].clamp(min=0)

    @classmethod
    def changes_after(cls, config: ZooConfig) -> int | None:
        """Length above which a longer sequence encodes its earlier positions differently; None without one."""
        return None

    def outgrows_cache(self, attention_mask: Any, seen: int, length: int) -> bool:
        """Whether a sequence of this length encodes the `seen` cached positions differently."""
        return False

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        """Add the encoding to the token embeddings, (batch_size, seq_len, hidden_size)."""
        return inputs_embeds

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> Rotation | None:
        """Input of `rotate`, computed once per forward, with the dtype and device of the hidden states; or None."""
        return None

    def rotations(self, hidden_states: Tensor, position_ids: Tensor, layer_types: Iterable[str]) -> Rotations:
        """Input of `rotate` by layer type: the same for all, unless a part overrides this."""
        return dict.fromkeys(layer_types, self.rotation(hidden_states, position_ids))

    @staticmethod
    def rotate(query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        """Encode positions in queries and keys.

        Args:
            query: *Shape:* (batch_size, num_attention_heads, seq_len, head_dim)
            key: *Shape:* (batch_size, num_key_value_heads, seq_len, head_dim)
        """
        return query, key

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Term added to the scores of self-attention, (1, num_attention_heads, query_len, key_len), or None."""
        return None


class LearnedPosition(Position):
    """A trained vector for every position (Gehring et al. 2017; BERT, GPT-2)."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "table"}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.max_length = config.max_position_embeddings
        self.weight = nn.Parameter(torch.empty(config.max_position_embeddings, config.hidden_size))
        self.initializer_range = config.initializer_range

    def init_weights(self) -> None:
        init.normal_(self.weight, mean=0.0, std=self.initializer_range)

    def forward(self, position_ids: Tensor) -> Tensor:
        """Look the rows up. *Shape:* (batch_size or 1, seq_len), then (batch_size or 1, seq_len, hidden_size)."""
        return F.embedding(position_ids, self.weight)

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        try:
            return inputs_embeds + self(position_ids)
        except IndexError as error:  # checked only after a failure, because reading positions would cost every forward
            self.check(int(position_ids.max()) + 1)
            raise InputError(f"position_ids begin at {int(position_ids.min())}; they are counted from 0") from error


class LearnedUnpaddedPosition(LearnedPosition):
    """A trained vector for every position, not counting padding on either side (RoBERTa, OPT)."""

    counts_padding = False


def check_token_ids(token_ids: Tensor, num_embeddings: int, kind: str = "token id") -> None:
    """Raise TokenIdError with the first id that is out of range and its place; the lookup's own error has neither."""
    wrong = (token_ids < 0) | (token_ids >= num_embeddings)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise TokenIdError(
            f"{kind} {int(token_ids[place])} at position {place} is outside of the vocabulary; "
            f"valid ids are 0 to {num_embeddings - 1}"
        )


class SinusoidalPosition(Position):
    """Fixed sines and cosines in alternating columns (Vaswani et al. 2017, section 3.5).

    The table is computed in float32 from the positions asked for, so the length has no limit.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.width = config.hidden_size
        self.theta = config.sinusoidal_theta

    def phases(self, position_ids: Tensor) -> Tensor:
        """Angles of every position: *Shape:* (batch_size or 1, seq_len, ceil(hidden_size / 2))."""
        # Computed in float32 and not kept: a buffer would lose its precision when the model is cast to bfloat16.
        exponents = torch.arange(0, self.width, 2, dtype=torch.float32, device=position_ids.device) / self.width
        return position_ids[..., None].float() / self.theta**exponents

    def table(self, position_ids: Tensor) -> Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(-2)[..., : self.width]

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        return inputs_embeds + self.table(position_ids).to(inputs_embeds.dtype)


class SinusoidalHalvesPosition(SinusoidalPosition):
    """The same sines and cosines, all sines first and all cosines after them (tensor2tensor, Marian)."""

    def table(self, position_ids: Tensor) -> Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.width]
