"""How many floating-point operations a model needs, counted without any memory or time; and those of a run."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, shape_wrapper
from transformers import PreTrainedModel

from zoo.analysis.inputs import inputs_of
from zoo.fast.int8 import Int8Linear, refuse
from zoo.fast.switches import fast_paths
from zoo.models import TASK_CLASSES, ZooConfig
from zoo.models.validation import require_at_least
from zoo.registry import Task

aten = torch.ops.aten

LANGUAGE_MODELS = {"encoder": Task.MASKED_LM, "decoder": Task.CAUSAL_LM, "encoder-decoder": Task.SEQ2SEQ_LM}
"""Class of model for a configuration without a head."""

COUNTED = ("input_ids", "inputs_embeds", "attention_mask", "decoder_input_ids", "decoder_inputs_embeds")
"""Keys of a batch that determine the number of operations."""


def solving(system: torch.Size, targets: torch.Size, **named: Any) -> int:
    """Operations of solving triangular systems, (..., size, size): half of those of a product."""
    return math.prod(system) * targets[-1]


def convolving_backward(gradient: torch.Size, states: torch.Size, filters: torch.Size, *rest: Any, **named: Any) -> int:
    """Operations of the backward pass of a convolution, filters (channels, channels per group, ...) included."""
    return 4 * math.prod(gradient) * math.prod(filters[1:])


def multiplying(states: torch.Size, *rest: Any, out_shape: torch.Size, **named: Any) -> int:
    """Operations of states, (..., in_features), by one matrix, or each by that of its group."""
    return 2 * math.prod(states) * out_shape[-1]


OWN_FORMULAS: dict[Any, Callable[..., int]] = {
    aten._grouped_mm: multiplying,
    aten.linalg_solve_triangular: solving,
    aten.convolution_backward: convolving_backward,
}
"""Operations, by shapes, of what PyTorch counts not at all, or as if every channel saw every other."""


MANY = 64
"""Sequences of a batch by which the operations of one are counted: tables of positions are projected once for all."""


class FlopsPerToken(NamedTuple):
    """Operations a token.

    Attributes:
        forward: Of one forward pass.
        training: Of one forward and backward pass.
    """

    forward: float
    training: float


@dataclass(frozen=True)
class Flops:
    """Operations of one batch: a multiplication and an addition are two.

    Matrix products alone are counted, as everywhere in the literature: what remains is less than one in a hundred.
    Attention counts every pair of positions, also those that a mask hides (PaLM, Chowdhery et al. 2022, appendix B).

    Attributes:
        forward: Of one forward pass.
        training: Of one forward and backward pass.
        tokens: Positions that the stacks read, source and target ones.
    """

    forward: int
    training: int
    tokens: int

    @property
    def per_token(self) -> FlopsPerToken:
        """The same, divided by the tokens."""
        return FlopsPerToken(self.forward / self.tokens, self.training / self.tokens)


def count_flops(model: PreTrainedModel, batch: Mapping[str, Any]) -> Flops:
    """Count the operations of a forward pass, and of a training step without its optimiser.

    The model is run on fake tensors, which have shapes and no values; so padding is worked on like any token, and every
    position is projected onto the vocabulary. Nothing is counted twice for gradient checkpointing.

    Args:
        model: The model, on any device, the meta device of `zoo.building.builder.skeleton` included.
        batch: Arguments of its forward; only their shapes matter. Labels make an encoder-decoder's target.
    """
    inputs = {name: value for name, value in batch.items() if name in COUNTED and value is not None}
    has_target = any(name.startswith("decoder_input") for name in inputs)
    if model.config.is_encoder_decoder and not has_target and batch.get("labels") is not None:
        inputs["decoder_input_ids"] = batch["labels"]
    tokens = sum(value.shape[:2].numel() for name, value in inputs.items() if name != "attention_mask")
    with FakeTensorMode(), fast_paths(unpadding="never", chunked_loss="never"):
        hollow = without_values(model)
        hollow.set_attn_implementation("eager")  # with all of its matrix products visible
        hollow.set_experts_implementation("batched_mm")
        for module in hollow.modules():
            if hasattr(module, "gradient_checkpointing"):
                module.gradient_checkpointing = False
        shapes = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in inputs.items()}
        with FlopCounterMode(display=False, custom_mapping=OWN_FORMULAS) as counter:
            output = hollow.train()(**shapes)[0]
            forward = counter.get_total_flops()
            output.sum().backward()
        training = counter.get_total_flops()
        if getattr(hollow, "mtp", None) is not None:  # runs with labels only
            labels = torch.zeros(next(iter(shapes.values())).shape[:2], dtype=torch.long)
            with FlopCounterMode(display=False, custom_mapping=OWN_FORMULAS) as counter:
                hollow(**shapes, labels=labels).loss.backward()
            training = counter.get_total_flops()
    return Flops(forward, training, tokens)


def flops_per_token(model: PreTrainedModel | ZooConfig, seq_len: int, decoder_len: int | None = None) -> FlopsPerToken:
    """Count the operations a token of a batch of many sequences of a given length.

    Args:
        model: The model, as for [`count_flops`][]; or a configuration, which is then taken for a language model's.
        seq_len: Length of what is read.
        decoder_len: Length of the target of an encoder-decoder, by default `seq_len`.
    """
    if isinstance(model, ZooConfig):
        with torch.device("meta"):
            model = TASK_CLASSES[LANGUAGE_MODELS[model.stack]][1](copy.deepcopy(model))
    return count_sequence(model, seq_len, decoder_len).per_token


def count_sequence(model: PreTrainedModel, seq_len: int, decoder_len: int | None = None) -> Flops:
    """Count the operations of one of many sequences in a batch. Arguments as for [`flops_per_token`][]."""
    lengths = (seq_len, seq_len if decoder_len is None else decoder_len)
    require_at_least(1, seq_len=seq_len, decoder_len=lengths[1])
    ids, target = (torch.empty(MANY, size, dtype=torch.long, device="meta") for size in lengths)
    counted = dataclasses.astuple(count_flops(model, inputs_of(model, ids, target)))
    return Flops(*(round(total / MANY) for total in counted))


def without_values(model: PreTrainedModel, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """Copy a model with new tensors, as empty as the active mode makes them."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        refuse("run on tensors without values")
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        empty = torch.empty(parameter.shape, dtype=dtype or parameter.dtype)
        memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return copy.deepcopy(model, memo)


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


BACKWARDS = (
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
    aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_efficient_attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward,
)
PREPACKED = [(torch.ops.mkl, "_mkl_linear"), (torch.ops.mkldnn, "_linear_pointwise")]  # Products of some builds

FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    **{operator: shape_wrapper(formula) for operator, formula in OWN_FORMULAS.items()},
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._transformer_encoder_layer_fwd: fast_layer_flops,
    **dict.fromkeys(BACKWARDS, attention_backward_flops),
    **{getattr(ops, name): shape_wrapper(multiplying) for ops, name in PREPACKED if hasattr(ops, name)},
}
"""Operations of operators, by PyTorch's own table where that knows them, and counts them as the literature does."""
