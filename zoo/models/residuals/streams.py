"""Streams of several vectors a token: how they begin and end."""

from __future__ import annotations

from torch import Tensor

from zoo.models.residual import Stream


class SeveralStreams(Stream):
    """Copies of the embedded tokens at the start, their sum at the end (Zhu et al. 2024, section 2.1)."""

    def __init__(self, num_streams: int) -> None:
        super().__init__()
        self.num_streams = num_streams
        self.drawn_as = ("sum of streams", f"{num_streams} copies of the embeddings at the start")

    def open(self, hidden_states: Tensor) -> Tensor:
        """Copy. *Shape:* (batch_size, seq_len, hidden_size) to (batch_size, seq_len, num_streams, hidden_size)."""
        return hidden_states.unsqueeze(-2).repeat_interleave(self.num_streams, dim=-2)

    def forward(self, streams: Tensor) -> Tensor:
        """Sum up. *Shape:* (batch_size, seq_len, num_streams, hidden_size) to (batch_size, seq_len, hidden_size)."""
        return streams.sum(dim=-2)

    def extra_repr(self) -> str:
        """Show the number of streams when the module is printed."""
        return str(self.num_streams)
