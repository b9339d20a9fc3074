"""Models on int8 weights: smaller and faster on a CPU, with other results."""

import copy
import copyreg
from collections import Counter
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch import Tensor, nn

from zoo.base.errors import InputError
from zoo.fast.int8 import MANY, Int8Linear, refuse
from zoo.models import ZooPreTrainedModel
from zoo.models.attention import Attention
from zoo.models.borrowing import borrowed_by
from zoo.models.layers import GatedFeedForward
from zoo.models.stack import ZooEncoder, ZooStack
from zoo.models.wrapped import zoo_model

Model = TypeVar("Model", bound=ZooPreTrainedModel)


def to_int8(model: Model, *, inplace: bool = False) -> Model:
    """Make a model for CPU inference with int8 weights in its linear layers, the output projection included.

    This is no fast path: **results change**, by about one per cent of the logits' size, by several where the processor
    has no instructions for int8 (VNNI) and inputs keep seven bits, and a generated text may go another way. Weights are
    rounded once, with a scale for every output; inputs of linear layers whenever they come, with one scale for a batch.
    Embeddings, norms and attention stay in float32; an embedding that the output projection is tied to, too.

    The new model runs, evaluates and generates as the float model does. It cannot be trained, saved, resized or moved,
    as its weights are packed for this processor: each of these is an error. Use the float model for them.

    Args:
        model: Any model of the zoo, on the CPU.
        inplace: Whether to turn this very model into the new one, layer by layer, instead of a copy: for less memory.

    Returns:
        The model on int8 weights, in evaluation mode.

    Raises:
        InputError: When the model is not one of the zoo's, or not on the CPU.
        UnsupportedBackendError: When this build of PyTorch has no library for int8 products.
    """
    model = zoo_model(model)
    if isinstance(model, Int8Model):
        return model
    if model.device.type != "cpu":
        raise InputError(f"the model is on {model.device}; int8 weights are for the CPU: quantise model.cpu()")
    counts = [model.num_parameters(exclude_embeddings=without) for without in (False, True)]
    linears = {id(module): module for module in model.modules() if type(module) is nn.Linear}
    target = model if inplace else copy.deepcopy(model, dict(linears))  # which shares them until they are replaced
    stacks = [module for module in target.modules() if isinstance(module, ZooStack)]
    kinds = {type(part) for stack in stacks for part in stack.modules()}
    for stack in stacks:
        if isinstance(stack, ZooEncoder):
            replace(stack, tokens=MANY)
    replace(target, tokens=MANY if target.config.stack == "encoder" else 1)  # decoders go on token by token
    for stack in stacks:
        stack.built_of |= {type(part) for other in stacks for part in other.modules()} - kinds
    target.eval().float().requires_grad_(False)
    target.__class__ = subclass(Int8Model, type(target))
    cast(Int8Model, target).counts = counts
    return target


class FusedProjections(Attention):
    """Attention with one product for queries, keys and values, so that its input is rounded once."""

    base, methods, parts = Attention, ("forward", "project", "split_heads"), ("q_proj", "k_proj", "v_proj")
    qkv_proj: Int8Linear
    widths: list[int]

    def fuse(self, tokens: int) -> None:
        """Replace three float layers by one int8 layer, for about `tokens` tokens at a time."""
        layers = (self.q_proj, self.k_proj, self.v_proj)
        self.qkv_proj, self.widths = Int8Linear(*layers, tokens=tokens), [layer.out_features for layer in layers]
        del self.q_proj, self.k_proj, self.v_proj

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projected = self.qkv_proj(hidden_states)
        if self.qk_norm is None and self.num_key_value_groups == 1:  # all at once: fewer operations a step
            query, key, value = projected.unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4).unbind()
            return query, key, value
        query, key, value = projected.split(self.widths, dim=-1)
        return self.split_heads(query, self.q_norm), self.split_heads(key, self.k_norm), self.split_heads(value)


class FusedGate(GatedFeedForward):
    """A gated network with one product for gate and value, so that its input is rounded once."""

    base, methods, parts = GatedFeedForward, ("forward", "project"), ("gate_proj", "up_proj")
    gate_up_proj: Int8Linear

    def fuse(self, tokens: int) -> None:
        """Replace two float layers by one int8 layer, for about `tokens` tokens at a time."""
        self.gate_up_proj = Int8Linear(self.gate_proj, self.up_proj, tokens=tokens)
        del self.gate_proj, self.up_proj

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
        return gate, up


def fuse(model: nn.Module, tokens: int) -> None:
    """Let layers that read the same input become one, where a sublayer computes as the library's own does."""
    owners = Counter(
        id(child) for module in model.modules() for child in (*module._modules.values(), *borrowed_by(module).values())
    )
    kinds: tuple[Any, ...] = (FusedProjections, FusedGate)
    for module in list(model.modules()):
        for kind in kinds:
            own = isinstance(module, kind.base) and not getattr(module, "is_cross", False)
            if own and all(getattr(type(module), name) is getattr(kind.base, name) for name in kind.methods):
                layers = [getattr(module, name) for name in kind.parts]
                if all(type(layer) is nn.Linear and owners[id(layer)] == 1 for layer in layers):
                    module.__class__ = subclass(kind, type(module))
                    cast(FusedProjections | FusedGate, module).fuse(tokens)


def replace(model: nn.Module, tokens: int) -> None:
    """Put int8 layers in the place of the linear layers, one for all places of a shared one."""
    fuse(model, tokens)
    replaced: dict[int, Int8Linear] = {}
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if type(child) is nn.Linear:
                if id(child) not in replaced:
                    replaced[id(child)] = Int8Linear(child, tokens=tokens)
                parent._modules[name] = replaced[id(child)]


def subclass(first: type, second: type) -> Any:
    """A class with the methods of both, of two kinds of the same module."""
    return _subclass(first, second)


@cache
def _subclass(first: type, second: type) -> Any:
    names = {"__module__": second.__module__, "__doc__": second.__doc__}
    return Int8Class(f"Int8{second.__name__}", (first, second), names)


class Int8Class(type):
    """Metaclass of classes that are made on demand; pickling refuses them."""


copyreg.pickle(Int8Class, lambda made: refuse("be pickled, and so not saved by torch.save nor sent to other processes"))


class Int8Model(ZooPreTrainedModel):
    """Methods that a model on int8 weights refuses."""

    counts: list[int]  # Parameters of the float model, with embeddings and without

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """The number of the float model's parameters; none of them is trained."""
        return 0 if only_trainable else self.counts[exclude_embeddings]

    def train(self, mode: bool = True) -> Any:
        """Stay in evaluation mode."""
        return refuse("be trained") if mode else super().train(False)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("be saved")

    def push_to_hub(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("be pushed")

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("be resized")  # packed weights have their size

    resize_decoder_token_embeddings = resize_token_embeddings

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Refuse another device and another dtype: everything that moves or casts a module comes through here."""
        moved = fn(torch.empty(0))
        if moved.device.type != "cpu" or moved.dtype != torch.float32:
            refuse(f"go to {moved.dtype} on {moved.device}")
        return super()._apply(fn, recurse)
