"""A pretended accelerator, for machines without one: real numbers, computed by the CPU, on a device of another name.

What would fail on a real one fails here: an operation on tensors of both devices raises. What would wait for a real one
is counted: asking for a value, choosing by a mask, copying back. How fast anything would be, nobody learns.

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
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.measuring.memory import Allocations

NAME = "pretended"
LIBRARY = str(Path(torch.__file__).parent)

Model = TypeVar("Model", bound=nn.Module)

aten = torch.ops.aten
ACROSS = {aten._to_copy.default, aten.copy_.default, aten.copy.default}
"""What may read one device and write to the other."""

INDEXING = {
    *(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default),
    *(aten.index_put_.default, aten._index_put_impl_.default),
}
WAITING = {
    *(aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default, aten.masked_select.default),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.repeat_interleave.Tensor),
}
"""What cannot go on before the device has come to a value, or to a number of them."""


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of both devices."""


class FarTensor(torch.Tensor):
    """A tensor that says it is on the pretended device.

    Args:
        there: Its values, on the CPU.

    Attributes:
        there: The same.
        allocated: Counts the memory of all of them, also of those that a backward pass makes in a thread of its own.
    """

    there: torch.Tensor
    allocated: ClassVar[Allocations | None] = None

    @staticmethod
    def __new__(cls, there: torch.Tensor) -> FarTensor:
        """Wrap values."""
        far: FarTensor = torch.Tensor._make_wrapper_subclass(
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
        """Compute outside of [`pretended_device`][], as a backward pass may, where nobody counts."""
        return compute(func, args, kwargs or {}, Counter())


class PretendedDevice(TorchDispatchMode):
    """The device while it is there.

    Attributes:
        name: For `to` and `device=`.
        waits: How often each operation waited for the device, by its name and the line that asked for it.
        allocated: Bytes of the tensors that are there, and the most that were there at one time.
    """

    name = f"{NAME}:0"

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.allocated = FarTensor.allocated = Allocations()

    def put(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Bring tensors there.

        Args:
            inputs: Arguments of a model; what is no tensor stays.

        Returns:
            The same on the device.
        """
        return {key: value.to(self.name) if isinstance(value, torch.Tensor) else value for key, value in inputs.items()}

    def move(self, model: Model) -> Model:
        """Bring a model there, in place. `model.to` would, too, and untie what shares weights."""
        moved: dict[int, torch.Tensor] = {}
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
        """Count what waits in a block.

        Yields:
            What has waited there, complete at its end.
        """
        before, found = Counter(self.waits), Counter[str]()
        yield found
        found.update(self.waits - before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute one operation."""
        return compute(func, args, kwargs or {}, self.waits)


class Construction(TorchFunctionMode):
    """Lets tensors be made of numbers there, and lists of tensors, which PyTorch does beneath its dispatcher.

    Args:
        waits: Gets what waits.
    """

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call one function."""
        options = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and is_far(options.get("device")):
            del options["device"]
            return func(*args, **options).to(NAME)
        if func is torch.Tensor.tolist and isinstance(args[0], FarTensor):
            self.waits[f"tolist in {asked_by()}"] += 1
            return args[0].there.tolist()
        return func(*args, **options)


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    """Have a pretended accelerator for a while.

    PyTorch keeps its name for the rest of the process, and has no use for it outside.

    Yields:
        The device.
    """
    register()
    with PretendedDevice() as device, Construction(device.waits):
        try:
            yield device
        finally:
            FarTensor.allocated = None


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """What PyTorch asks about the device. It is not to be found by who looks for an accelerator, as trainers do."""

    def is_available(self) -> bool:
        """Whether to use it unasked."""
        return False

    def is_built(self) -> bool:
        """Likewise."""
        return False

    def has_primary_context(self, dev_id: int) -> bool:
        """Whether there is something to go back to."""
        return True


@cache
def register() -> None:
    """Tell PyTorch that there is such a kind of device, which its gradients ask for."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, hook=Hooks())
    module = torch.get_device_module(NAME)
    # Asked where layers are computed again; random numbers are the CPU's.
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    module.get_rng_state = lambda device=None: torch.get_rng_state()
    module.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    module.manual_seed = module.manual_seed_all = torch.default_generator.manual_seed


def compute(func: Callable[..., Any], args: Any, kwargs: dict[str, Any], waits: Counter[str]) -> Any:
    """Compute one operation on the CPU, as if where its tensors say that they are.

    Args:
        func: An operator of PyTorch.
        args: Its arguments.
        kwargs: Likewise, by name.
        waits: Gets the operation if it waits for the device.

    Returns:
        Its results, on the device that they would be on.

    Raises:
        MixedDevicesError: When tensors are of both devices; single numbers may be anywhere, and indices on the CPU.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
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
    found = func(*pytree.tree_map(values_of, args), **pytree.tree_map(values_of, kwargs))
    if func._schema.is_mutable:  # type: ignore[attr-defined]
        return written(func, args, kwargs, found)
    return pytree.tree_map_only(torch.Tensor, FarTensor, found) if goes_there else found


def has_to_wait(func: Any, args: Any, goes_there: bool) -> bool:
    """Whether an operation on tensors of the device goes on only when these have been computed.

    Args:
        func: The operator.
        args: Its arguments.
        goes_there: Whether its results are on the device as well.

    Returns:
        True for those that give values, or whose results' sizes depend on them.
    """
    masks = (torch.bool, torch.uint8)
    by_mask = func in INDEXING and any(
        isinstance(index, FarTensor) and index.dtype in masks for index in pytree.tree_leaves(args[1])
    )
    return func in WAITING or by_mask or (func in ACROSS and not goes_there)


def written(func: Any, args: Any, kwargs: dict[str, Any], found: Any) -> Any:
    """The results of an operation that writes: the very tensors that it was given to write to.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Likewise, by name.
        found: What it has returned on the CPU.
    """
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


def values_of(leaf: Any) -> Any:
    """The values behind a tensor; anything else as it is."""
    return leaf.there if isinstance(leaf, FarTensor) else leaf


def is_far(device: Any) -> bool:
    """Whether a device, or its name, is the pretended one."""
    return device is not None and torch.device(device).type == NAME


def asked_by() -> str:
    """The line outside of PyTorch that asked for the operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith((LIBRARY, "<")) or is_here(frame)):
        frame = frame.f_back
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-3:])}:{frame.f_lineno}"


def is_here(frame: Any) -> bool:
    """Whether a frame is of this file."""
    return bool(frame.f_code.co_filename == __file__)
