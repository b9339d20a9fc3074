"""Tensors of the fake device, and its operations."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.analysis.measuring.memory import Allocations

NAME = "pretended"
INNER = ("<", str(Path(torch.__file__).parent), __file__, str(Path(__file__).with_name("device.py")))
"""Prefixes of source files that request no operation of their own."""

aten = torch.ops.aten
ACROSS = {aten._to_copy.default, aten.copy_.default, aten.copy.default}
"""Operations that may read one device and write to the other."""

INDEXING = {
    *(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default),
    *(aten.index_put_.default, aten._index_put_impl_.default),
}
WAITING = {
    *(aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default, aten.masked_select.default),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.repeat_interleave.Tensor),
}
"""Operations that wait for the device, for a value or a number of values."""


def count_values(values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A histogram of whole numbers, which PyTorch makes on accelerators, but not on a CPU."""
    return torch.histc(values.double(), *args, **kwargs).to(values.dtype)


THERE_ALONE: dict[Any, Callable[..., Any]] = {aten.histc.default: count_values}
"""Substitutes for operations that CPUs have for fewer types."""


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of both devices."""


class FarTensor(Tensor):
    """A tensor on the fake device.

    Args:
        there: Its values, on the CPU.

    Attributes:
        there: The same.
        allocated: Counts the memory of all of them, also of those that a backward pass makes in a thread of its own.
    """

    there: Tensor
    allocated: ClassVar[Allocations | None] = None

    @staticmethod
    def __new__(cls, there: Tensor) -> FarTensor:
        """Wrap values."""
        far: FarTensor = Tensor._make_wrapper_subclass(
            cls,
            there.size(),
            strides=there.stride(),
            storage_offset=there.storage_offset(),
            dtype=there.dtype,
            device=torch.device(NAME, 0),
        )
        far.there = there
        if cls.allocated is not None:
            cls.allocated.see(there)
        return far

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"FarTensor({self.there!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation outside the fake device's context, as a backward pass may."""
        return compute(func, args, kwargs or {}, Counter())


def compute(func: Callable[..., Any], args: Any, kwargs: dict[str, Any], waits: Counter[str]) -> Any:
    """Run one operation on the CPU, with the devices that its tensors have."""
    tensors = list(tensors_of((*args, *kwargs.values())))
    far = [tensor for tensor in tensors if isinstance(tensor, FarTensor)]
    near = [tensor for tensor in tensors if not isinstance(tensor, FarTensor) and tensor.ndim]
    if far and near and func not in ACROSS and not (func in INDEXING and isinstance(args[0], FarTensor)):
        shapes = [[tuple(tensor.shape) for tensor in some] for some in (far, near)]
        raise MixedDevicesError(f"{func} of {shapes[0]} on {NAME} and {shapes[1]} on the CPU, in {asked_by()}")
    goes_there = is_far(kwargs["device"]) if kwargs.get("device") is not None else bool(far)
    if func in (aten.copy_.default, aten.copy.default):
        goes_there = isinstance(args[0], FarTensor)
    if far and has_to_wait(func, args, goes_there):
        waits[f"{func} in {asked_by()}"] += 1
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    run = THERE_ALONE.get(func, func) if far else func
    found = run(*map(values_of, args), **{key: values_of(value) for key, value in kwargs.items()})
    if func._schema.is_mutable:  # type: ignore[attr-defined]
        return written(func, args, kwargs, found)
    return brought(found) if goes_there else found


def has_to_wait(func: Any, args: Any, goes_there: bool) -> bool:
    """Whether an operation on tensors of the device goes on only when these have been computed."""
    masks = (torch.bool, torch.uint8)
    by_mask = func in INDEXING and any(isinstance(index, FarTensor) and index.dtype in masks for index in args[1])
    return func in WAITING or by_mask or (func in ACROSS and not goes_there)


def written(func: Any, args: Any, kwargs: dict[str, Any], found: Any) -> Any:
    """The results of an operation that writes: the very tensors that it was given to write to."""
    if found is None or not func._schema.returns:
        return None
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    targets = [
        given[argument.name]
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return targets[0] if len(func._schema.returns) == 1 else tuple(targets)


def tensors_of(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)


def values_of(argument: Any) -> Any:
    """The CPU values of a tensor, or of a list's tensors; other objects unchanged."""
    if isinstance(argument, FarTensor):
        return argument.there
    return type(argument)(map(values_of, argument)) if isinstance(argument, (list, tuple)) else argument


def brought(found: Any) -> Any:
    """Move an operation's result to the fake device."""
    if isinstance(found, Tensor):
        return FarTensor(found)
    return type(found)(map(brought, found)) if isinstance(found, (list, tuple)) else found


def is_far(device: Any) -> bool:
    """Whether a device, or its name, is the pretended one."""
    return device is not None and torch.device(device).type == NAME


def asked_by() -> str:
    """The line outside of PyTorch that asked for the operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INNER):
        frame = frame.f_back
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-3:])}:{frame.f_lineno}"
