"""Guards, as in torch.compile: the state that a forward depends on apart from tensor values.

A captured step reads parameters in place, so new values are seen without guards. Guarded are the decisions made at
capture: modules, the tensors they hold, their attributes (`scaling`, `eps`, a configuration's fields), their classes'
methods, hooks, the functions of `torch.nn.functional`, and transformers' registered attention and experts functions.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

OURS = __name__.removesuffix("guards").removesuffix("fast.")
"""Package of the zoo's modules: another one if the code came with a checkpoint."""

KNOWN_MODULES = ("torch.nn.", "transformers.activations", OURS)
"""Modules with classes that are known to run their forward only."""

KNOWN_FUNCTIONS = ("torch.", "transformers.", "typing", "dataclasses", OURS)
"""Modules that may define their methods and attention functions."""

OWN_ATTRIBUTES = (frozenset(vars(nn.Module())) - {"training"}) | {"generation_config"}
"""Internal attributes of every module; hooks, parameters and submodules are compared one by one. And what `generate`
reads but no forward: another `generation_config` makes other steps, or the same."""

MEMBERS = attrgetter("_modules", "_parameters", "_buffers")
HOOKS = attrgetter("_forward_hooks", "_forward_pre_hooks")

LEAVES = (bool, int, float, str, bytes, type, FunctionType, Tensor, torch.dtype, nn.Module, ModuleType)
"""Types compared by identity; the attributes of any other object are compared too."""

LARGE_BASES = (nn.Module, PreTrainedModel)
"""Classes that are slow to compare; replaced methods are found between generations."""

SCALARS = (bool, int, float, str)


class Guards:
    """Snapshot of a model's forward dependencies, to compare with their present state.

    Objects are compared by identity: an equal tensor is a different one as soon as either is written to. The model
    itself is not referenced, so that it can be freed while its guards are kept.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        attributes = [vars(module) for module in modules]
        classes = dict.fromkeys(chain.from_iterable(type(module).__mro__[:-1] for module in modules))
        members = [dictionary for module in modules for dictionary in MEMBERS(module)]
        hooks = [dictionary for module in modules for dictionary in HOOKS(module)]
        watched = [kind for kind in classes if issubclass(kind, nn.Module) and kind not in LARGE_BASES]

        self._children = modules[1:]
        self._tensors = [*model.parameters(), *model.buffers()]
        self._empty = [*hooks, *(dictionary for dictionary in members if not dictionary)]
        self._dictionaries, self._sizes = attributes, list(map(len, attributes))
        self._attributes = [(own_attributes(dictionary), dictionary) for dictionary in attributes]
        self._views = [
            *(dictionary.values() for dictionary in members if dictionary),
            *(vars(kind).values() for kind in watched),
            *(vars(sys.modules[name]).values() for name in own_files(watched)),
            vars(F).values(),
            *inner_values(value for get, dictionary in self._attributes for value in get(dictionary)),
        ]
        self._functions = [
            partial(interface.get, name)
            for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS)
            for name in sorted(attention_backends(modules))
        ]
        self._functions += [partial(ALL_EXPERTS_FUNCTIONS.get, name) for name in ALL_EXPERTS_FUNCTIONS]
        self._seen = list(self._look())
        names = [tuple(dictionary) for dictionary in (*attributes, *members)]
        methods = [value for kind in classes for value in vars(kind).values()]
        code = [getattr(method, "__code__", None) for method in methods]  # replaced by reloading in a notebook
        self._whole = [type(model), *chain.from_iterable(names), *methods, *code, *self._seen]

    def _look(self) -> Iterator[Any]:
        """Everything that is compared before every decode step, in a fixed order."""
        return chain(
            chain.from_iterable(self._views),
            chain.from_iterable([get(dictionary) for get, dictionary in self._attributes]),
            map(type, self._children),
            map(attrgetter("dtype"), self._tensors),
            [look_up() for look_up in self._functions],
            (END,),
        )

    def hold(self) -> bool:
        """Whether the model is unchanged; `==` also compares the methods of `LARGE_BASES` and code objects."""
        try:
            return (
                not any(self._empty)
                and list(map(len, self._dictionaries)) == self._sizes
                and all(map(is_, self._look(), self._seen))
            )
        except (KeyError, RuntimeError):  # an attribute has gone; another thread is changing the model
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Guards):
            return NotImplemented
        return len(self._whole) == len(other._whole) and all(map(alike, self._whole, other._whole))

    __hash__ = None  # type: ignore[assignment]


END = object()  # Sentinel at the end of a sequence, so that a longer one is not equal


def alike(one: object, other: object) -> bool:
    """Whether two guarded values are identical, or equal numbers or strings."""
    return one is other or (type(one) is type(other) and isinstance(one, SCALARS) and one == other)


def own_attributes(attributes: dict[str, Any]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Make a function that reads a module's attributes other than those of `torch.nn.Module`."""
    names = [name for name in attributes if name not in OWN_ATTRIBUTES]
    return itemgetter(*names, "training")  # twice, because a single name would give no tuple


def inner_values(values: Iterator[Any]) -> list[Any]:
    """Mutable values inside of attributes, by the object that holds them: fields of configurations, elements."""
    found: dict[int, Any] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value is None or isinstance(value, LEAVES) or id(value) in found:
            continue
        inner = value if isinstance(value, (list, tuple, set, dict)) else getattr(value, "__dict__", {})
        found[id(value)] = inner.values() if isinstance(inner, dict) else inner
        waiting.extend(found[id(value)])
    return list(found.values())


def attention_backends(modules: list[nn.Module]) -> set[str]:
    """Names of the attention backends in the modules' configurations."""
    configs = [getattr(module, "config", None) for module in modules]
    return {str(config._attn_implementation) for config in configs if isinstance(config, PreTrainedConfig)}


def own_files(kinds: list[type]) -> dict[str, None]:
    """Names of the zoo's modules that a forward may run: those of its classes, and of functions that they import."""
    names = dict.fromkeys(kind.__module__ for kind in kinds if kind.__module__.startswith(OURS))
    functions = [value for name in names for value in vars(sys.modules[name]).values() if type(value) is FunctionType]
    return names | dict.fromkeys(name for one in functions if (name := one.__module__ or "").startswith(OURS))


def can_be_captured(model: nn.Module) -> bool:
    """Whether a forward can be captured: on a CPU, in evaluation, unpatched, of the zoo's and PyTorch's classes."""
    modules = list(model.modules())
    names = attention_backends(modules)
    kinds = {type(module) for module in modules}
    bases = {base for kind in kinds for base in kind.__mro__ if base.__module__.startswith(KNOWN_MODULES)}
    return (
        all(tensor.device.type == "cpu" for tensor in model.parameters())
        and not any(module.training or any(HOOKS(module)) or is_patched(module) for module in modules)
        and kinds <= bases
        and all(comes_from(value, KNOWN_FUNCTIONS) for base in bases for value in vars(base).values())
        and all(isinstance(one, BuiltinFunctionType) or comes_from(one, KNOWN_FUNCTIONS) for one in vars(F).values())
        and all(comes_from(ALL_ATTENTION_FUNCTIONS.get(name), KNOWN_FUNCTIONS) for name in names)
        and all(comes_from(ALL_MASK_ATTENTION_FUNCTIONS.get(name), KNOWN_FUNCTIONS) for name in names)
    )


def is_patched(module: nn.Module) -> bool:
    return any(callable(getattr(type(module), name, None)) for name in vars(module))


def comes_from(value: Any, places: tuple[str, ...]) -> bool:
    """Whether a function is defined in modules with one of these prefixes; True for other values."""
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        return f"{function.__globals__.get('__name__', '')}.".startswith(places)
    return not callable(function) or isinstance(function, type) or type(function).__module__.startswith(places)
