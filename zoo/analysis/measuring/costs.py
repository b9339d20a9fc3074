"""Costs of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Costs:
    """Costs of a model, apart from what training itself has measured. None is what was not, or cannot be, measured.

    Attributes:
        parameters: Each shared one counted once.
        non_embedding_parameters: Without token and position embeddings; the output projection counts, unless it is an
            embedding.
        flops_per_token: Operations a token of a forward pass, at the lengths of the measured batch.
        training_flops_per_token: Operations a token of a forward and backward pass.
        activation_bytes: Bytes that a training step on the measured batch keeps for its backward pass, no parameters.
        activation_tokens: Positions of that batch.
        prefill_tokens_per_second: Speed of reading prompts, or for an encoder any input.
        decode_tokens_per_second: Tokens written a second, one at a time with a cache, by greedy decoding of one
            sequence; None for models that do not generate.
        decode_latency_p50: Median seconds from one written token to the next.
        decode_latency_p95: The same, of the slowest twentieth.
        model_flops_utilization: Operations a second while training, as a share of `gemm_flops_per_second`.
        gemm_flops_per_second: The most that matrix products reach on this machine, at the model's precision.
        seconds: Duration of the measurement.
    """

    parameters: int
    non_embedding_parameters: int
    flops_per_token: float | None = None
    training_flops_per_token: float | None = None
    activation_bytes: int | None = None
    activation_tokens: int | None = None
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    decode_latency_p50: float | None = None
    decode_latency_p95: float | None = None
    model_flops_utilization: float | None = None
    gemm_flops_per_second: float | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain data."""
        return asdict(self)
