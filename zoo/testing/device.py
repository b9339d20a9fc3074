"""A pretended accelerator, for machines without one: real numbers, computed by the CPU, on a device of another name.

An operation that fails on a real device fails here: tensors of two devices in one operation raise. An operation that
waits for a real device is counted: reading a value, selecting by a mask, copying back. Speed is not simulated.

```python
with pretended_device() as device:
    device.move(model)
    outputs = model(**device.put(inputs))
print(device.waits)
outputs.logits.there  # the values, on the CPU
```
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.analysis.measuring.machine import Allocations

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
    """A tensor on the fake device."""

    there: Tensor  # The same
    # Counts the memory of all of them, also of those that a backward pass makes in its own thread
    allocated: ClassVar[Allocations | None] = None

    @staticmethod
    def __new__(cls, there: Tensor) -> FarTensor:
        layout: dict[str, Any] = {"strides": there.stride(), "storage_offset": there.storage_offset()}
        far: FarTensor = Tensor._make_wrapper_subclass(
            cls, there.size(), dtype=there.dtype, device=torch.device(NAME, 0), **layout
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
    arguments = func._schema.arguments
    given = {**dict(zip((one.name for one in arguments), args, strict=False)), **kwargs}
    targets = [given[one.name] for one in arguments if one.alias_info is not None and one.alias_info.is_write]
    return targets[0] if len(func._schema.returns) == 1 else tuple(targets)


def tensors_of(values: Any) -> Iterator[Tensor]:
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
    if isinstance(found, Tensor):
        return FarTensor(found)
    return type(found)(map(brought, found)) if isinstance(found, (list, tuple)) else found


def is_far(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def asked_by() -> str:
    """The line outside of PyTorch that asked for the operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INNER):
        frame = frame.f_back
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-3:])}:{frame.f_lineno}"


Model = TypeVar("Model", bound=nn.Module)

AUTOCAST = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
"""Lets autocast be asked for there; it casts nothing."""

KERNELS = torch.library.Library("aten", "IMPL", "PrivateUse1")
"""Declares kernels of the device, for which PyTorch would otherwise substitute several operations."""


class PretendedDevice(TorchDispatchMode):
    """The device while it is there."""

    name = f"{NAME}:0"  # For `to` and `device=`

    def __init__(self) -> None:
        super().__init__()
        # How often each operation waited for the device, by its name and the line that asked for it
        self.waits: Counter[str] = Counter()
        self.allocated = FarTensor.allocated = Allocations()

    def put(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value.to(self.name) if isinstance(value, Tensor) else value for key, value in inputs.items()}

    def move(self, model: Model) -> Model:
        """Bring a model there, in place. `model.to` would, too, and untie what shares weights."""
        moved: dict[int, Tensor] = {}
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in moved:
                        far = tensor.detach().to(self.name)
                        is_learned = isinstance(tensor, nn.Parameter)
                        moved[id(tensor)] = nn.Parameter(far, tensor.requires_grad) if is_learned else far
                    tensors[name] = moved[id(tensor)]  # type: ignore[assignment]
        return model

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        before, found = Counter(self.waits), Counter[str]()
        yield found
        found.update(self.waits - before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {}, self.waits)


class Construction(TorchFunctionMode):
    """Lets tensors be made from numbers there, and lists of tensors, which PyTorch does beneath its dispatcher."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and is_far(options.get("device")):
            del options["device"]
            return func(*args, **options).to(NAME)
        if func is Tensor.tolist and isinstance(args[0], FarTensor):
            self.waits[f"tolist in {asked_by()}"] += 1
            return args[0].there.tolist()
        return func(*args, **options)


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    register()
    with PretendedDevice() as device, Construction(device.waits):
        try:
            yield device
        finally:
            FarTensor.allocated = None


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """PyTorch's device module. `torch.accelerator` does not find it, so that trainers do not select it."""

    def is_available(self) -> bool:
        return False

    def is_built(self) -> bool:
        return False

    def has_primary_context(self, dev_id: int) -> bool:
        """Whether a previous device remains to go back to."""
        return True


@cache
def register() -> None:
    """Register the kind of device with PyTorch, which autograd requires."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, hook=Hooks())
    AUTOCAST.fallback(torch.library.fallthrough_kernel)
    KERNELS.impl("silu_backward", torch.ops.aten.silu_backward.default)  # in fact computed by `compute`
    module = torch.get_device_module(NAME)
    # Asked where layers are computed again; random numbers are the CPU's.
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    module.get_rng_state = lambda device=None: torch.get_rng_state()
    module.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    module.manual_seed = module.manual_seed_all = torch.default_generator.manual_seed
