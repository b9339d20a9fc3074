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

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.analysis.measuring.memory import Allocations

from .far_tensors import NAME, FarTensor, asked_by, compute, is_far

Model = TypeVar("Model", bound=nn.Module)

AUTOCAST = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
"""Lets autocast be asked for there; it casts nothing."""

KERNELS = torch.library.Library("aten", "IMPL", "PrivateUse1")
"""Says that the device has a kernel, where PyTorch would else put several operations in its place."""


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
        """Bring tensors there."""
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
        """Count what waits in a block."""
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
        if func is Tensor.tolist and isinstance(args[0], FarTensor):
            self.waits[f"tolist in {asked_by()}"] += 1
            return args[0].there.tolist()
        return func(*args, **options)


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    """Have a pretended accelerator for a while."""
    register()
    with PretendedDevice() as device, Construction(device.waits):
        try:
            yield device
        finally:
            FarTensor.allocated = None


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """PyTorch's device module. `torch.accelerator` does not find it, so that trainers do not select it."""

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
