"""Costs of models: operations, activations, speed, and utilisation of the machine."""

from .flops import Executed, Flops, FlopsPerToken, OperatorCounter, count_flops, executed, flops_per_token
from .machine import gemm_limit, peak_bytes
from .measuring import Costs, activation_bytes, measure
from .speed import DecodeSpeed, decode_speed, prefill_speed, training_speed

__all__ = [
    "Costs",
    "DecodeSpeed",
    "Executed",
    "Flops",
    "FlopsPerToken",
    "OperatorCounter",
    "activation_bytes",
    "count_flops",
    "decode_speed",
    "executed",
    "flops_per_token",
    "gemm_limit",
    "measure",
    "peak_bytes",
    "prefill_speed",
    "training_speed",
]
