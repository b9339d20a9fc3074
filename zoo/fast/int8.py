"""Linear layers on int8 weights: a quarter of the memory, several times faster on a CPU, with different results.

A weight matrix is rounded to int8 once, with one scale per output; the input of a product is rounded to eight bits at
run time, with one scale per tensor (Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 2). Products and sums are exact integers, and outputs are float32.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from zoo.base.errors import UnsupportedBackendError, UnsupportedOperationError

from .graph_capture import QUICKER

ONEDNN = "onednn"
ENGINES = ("x86", "fbgemm", ONEDNN, "qnnpack")
"""PyTorch's int8 libraries, the fastest for one token first; a build of PyTorch has some of them."""

FASTEST_FOR_MANY = ONEDNN  # The fastest for many tokens at a time, on processors where it is exact
MANY = 256  # Number of tokens from which it is faster, on two cores of a Xeon

_operator: Any = getattr(torch.ops.quantized, "linear_dynamic", None)
linear_dynamic: Any = _operator and _operator.default._op
"""Rounds its input and multiplies; None if PyTorch lacks it. Bypasses `torch.ops`, where checking the arguments takes
as long as a small product."""


def int8_product(hidden_states: Tensor, packed: Any, reduce_range: bool = False) -> Tensor:
    """Multiply by an int8 matrix from [`pack`][], without checks: (..., in_features) -> (..., out_features)."""
    return linear_dynamic(hidden_states, packed, reduce_range)


if _operator is not None:
    QUICKER[_operator.default] = int8_product


@dataclass(frozen=True)
class Int8Engine:
    """Library for int8 matrix products on this machine."""

    name: str
    # Whether inputs are rounded to seven bits instead of eight, because sums of two products overflow 16 bits on
    # processors without instructions for int8 (VNNI)
    reduce_range: bool


@cache
def int8_engine(many: bool = False) -> Int8Engine:
    """Choose the library for one token, or for many at a time."""
    supported = torch.backends.quantized.supported_engines
    names = [name for name in ENGINES if name in supported]
    if linear_dynamic is None or not names:
        raise UnsupportedBackendError(
            f"this build of PyTorch multiplies no int8 matrices; those with {', '.join(ENGINES)} do"
        )
    name = FASTEST_FOR_MANY if many and FASTEST_FOR_MANY in names and not overflows(FASTEST_FOR_MANY) else names[0]
    return Int8Engine(name, overflows(name))


@cache
def overflows(engine: str) -> bool:
    """Whether sums of large products overflow with eight-bit inputs; not in a library that is not there."""
    if linear_dynamic is None or engine not in torch.backends.quantized.supported_engines:
        return False
    output = linear_dynamic(torch.ones(1, 64), pack(engine, torch.ones(1, 64), torch.zeros(1)), False)
    return abs(float(output) - 64) > 1


def pack(engine: str, weight: Tensor, bias: Tensor) -> Any:
    """Quantize a weight matrix, (out_features, in_features), and pack it for the library with a float32 bias."""
    weight = weight.float()
    scales = weight.abs().amax(dim=1).double().clamp(min=torch.finfo(torch.float32).tiny * 127) / 127
    zeros = torch.zeros(len(scales), dtype=torch.long)
    with warnings.catch_warnings():  # a deprecation of the quantized dtypes, not of the products
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        rounded = torch.quantize_per_channel(weight, scales, zeros, axis=0, dtype=torch.qint8)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        return torch.ops.quantized.linear_prepack(rounded, bias.float())
    finally:
        torch.backends.quantized.engine = before


class Int8Linear(nn.Module):
    """A linear layer, or several joined, on int8 weights for about `tokens` tokens a call; without parameters."""

    def __init__(self, *layers: nn.Linear, tokens: int = 1) -> None:
        super().__init__()
        engine = int8_engine(tokens >= MANY)
        self.engine = engine.name
        self.in_features = layers[0].in_features
        self.out_features = sum(layer.out_features for layer in layers)
        weights: list[Tensor] = [layer.weight.detach() for layer in layers]
        biases = [
            layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
            for layer in layers
        ]
        self.packed = pack(engine.name, torch.cat(weights), torch.cat(biases))
        self.reduce_range = engine.reduce_range
        self.training = False

    def forward(self, hidden_states: Tensor) -> Tensor:
        return int8_product(hidden_states, self.packed, self.reduce_range)

    def _save_to_state_dict(self, *args: Any) -> NoReturn:
        """Refuse: a checkpoint without these weights would look complete."""
        refuse("give a state_dict")

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, engine={self.engine}"


def refuse(what: str) -> NoReturn:
    """Raise the error of all operations that need float weights."""
    raise UnsupportedOperationError(
        f"a model on int8 weights cannot {what}: they are rounded, and packed for this processor; do that with the "
        "float model that zoo.to_int8 was given"
    )
