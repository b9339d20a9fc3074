"""Counts of executed operations, which do not depend on the load of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from .flops import OWN_FORMULAS, multiplying

aten = torch.ops.aten
CPU_ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu
BACKWARDS = (
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
    aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_efficient_attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward,
)
FAST_LAYER = aten._transformer_encoder_layer_fwd
PREPACKED = [(torch.ops.mkl, "_mkl_linear"), (torch.ops.mkldnn, "_linear_pointwise")]  # Products of some builds


class Executed(NamedTuple):
    """Counts of a run.

    Attributes:
        flops: Operations of its matrix products, a multiplication and an addition being two. Attention counts every
            pair of positions, and its backward pass twice as much as the forward one, as in the literature, although
            it computes the scores again.
        operators: PyTorch operators called, views among them.
    """

    flops: int
    operators: int


class OperatorCounter(TorchDispatchMode):
    """Counts operators and their operations.

    Other than `FlopCounterMode`, it looks at no modules, and so leaves losses alone that find gradients by themselves.

    Attributes:
        calls: How often each operator was called.
        flops: Their operations, as for [`Executed`][].
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = FORMULAS.get(func._overloadpacket)
        if formula is None and func is not torch.ops.prim.device.default:
            with self:  # composite operators, which arrive whole in inference mode
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        self.calls[str(func)] += 1
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=output)
        return output


def executed(run: Callable[[], object]) -> Executed:
    """Count what a run executes. A compiled model is executed operator by operator."""
    with torch.compiler.set_stance("force_eager"), OperatorCounter() as counter:
        run()
    return Executed(counter.flops, counter.calls.total())


def attention_flops(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> int:
    """Operations of attention on a CPU: two products of tensors, (batch_size, num_heads, seq_len, head_dim)."""
    return 2 * query.shape[:3].numel() * key.shape[2] * (query.shape[3] + value.shape[3])


def attention_backward_flops(gradient: Tensor, *states: Tensor, **named: Any) -> int:
    """Operations of the backward pass of attention, on any device: four products."""
    return 2 * attention_flops(*states)


def fast_layer_flops(states: Tensor, width: int, *rest: Any, **named: Any) -> int:
    """Operations of a whole layer of `nn.TransformerEncoder` on its fast path: six products."""
    matrices = [tensor for tensor in rest if isinstance(tensor, Tensor) and tensor.ndim == 2]
    lengths = [len(row) for row in states.unbind()]
    weights = sum(matrix.numel() for matrix in matrices[:4])
    return sum(2 * length * weights + 4 * length * length * width for length in lengths)


FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    **{operator: shape_wrapper(formula) for operator, formula in OWN_FORMULAS.items()},
    CPU_ATTENTION: attention_flops,
    FAST_LAYER: fast_layer_flops,
    **dict.fromkeys(BACKWARDS, attention_backward_flops),
    **{getattr(ops, name): shape_wrapper(multiplying) for ops, name in PREPACKED if hasattr(ops, name)},
}
"""Operations of operators, by PyTorch's own table where that knows them, and counts them as the literature does."""
