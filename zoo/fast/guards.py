"""Guards, as torch.compile has them: what a forward depends on beside values of tensors, so no captured step is stale.

A captured step reads parameters where they are, so their values count by themselves. All else was decided when the step
was captured: which modules there are, which tensors they hold, their attributes (`scaling`, `eps`, a configuration's
fields), their classes' methods, hooks, the functions of `torch.nn.functional`, and those in transformers' interfaces of
attention and experts.
"""

from __future__ import annotations

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
"""Where the zoo's modules live: elsewhere if the code came with a checkpoint."""

KNOWN_MODULES = ("torch.nn.", "transformers.activations", OURS)
"""Where classes come from of which it is known that a forward is all they do."""

KNOWN_FUNCTIONS = ("torch.", "transformers.", "typing", "dataclasses", OURS)
"""Where their methods and attention functions may come from."""

OWN_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}
"""What every module has for its own administration; hooks, parameters and submodules are looked at one by one."""

MEMBERS = attrgetter("_modules", "_parameters", "_buffers")
HOOKS = attrgetter("_forward_hooks", "_forward_pre_hooks")

LEAVES = (bool, int, float, str, bytes, type, FunctionType, Tensor, torch.dtype, nn.Module, ModuleType)
"""What is looked at by identity; anything else may hold something that changes, and is looked into."""

LARGE_BASES = (nn.Module, PreTrainedModel)
"""Classes that take long to look at; whether their methods have been replaced is found out between generations."""

SCALARS = (bool, int, float, str)


class Guards:
    """What a model's forward depends on, to be compared with what it depends on now.

    Objects are compared by identity: an equal tensor is another one as soon as either is written to. The model itself
    is not held, so that it can be forgotten while its guards are kept.

    Args:
        model: The model as it is now.
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
        code = [getattr(method, "__code__", None) for method in methods]  # which reloading in a notebook replaces
        self._whole = [type(model), *chain.from_iterable(names), *methods, *code, *self._seen]

    def _look(self) -> Iterator[Any]:
        """Everything that is looked at before every decode step, in the same order each time."""
        return chain(
            chain.from_iterable(self._views),
            chain.from_iterable([get(dictionary) for get, dictionary in self._attributes]),
            map(type, self._children),
            map(attrgetter("dtype"), self._tensors),
            [look_up() for look_up in self._functions],
            (END,),
        )

    def hold(self) -> bool:
        """Whether the model is still what it was, quickly enough to ask before every decode step.

        Methods of `LARGE_BASES` and the code inside of functions are left to `==`.

        Returns:
            False as soon as anything has been replaced, added or taken away.
        """
        try:
            return (
                not any(self._empty)
                and list(map(len, self._dictionaries)) == self._sizes
                and all(map(is_, self._look(), self._seen))
            )
        except (KeyError, RuntimeError):  # an attribute has gone; another thread is changing what is looked at
            return False

    def __eq__(self, other: object) -> bool:
        """Whether two sets of guards are of the same model in the same state."""
        if not isinstance(other, Guards):
            return NotImplemented
        return len(self._whole) == len(other._whole) and all(map(alike, self._whole, other._whole))

    __hash__ = None  # type: ignore[assignment]


END = object()
"""Stands behind what is looked at, lest something longer passes for the same."""


def alike(one: object, other: object) -> bool:
    """Whether something looked at is the same, or an equal number or word."""
    return one is other or (type(one) is type(other) and isinstance(one, SCALARS) and one == other)


def own_attributes(attributes: dict[str, Any]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Make a function that reads what a module has beside the administration of `torch.nn.Module`."""
    names = [name for name in attributes if name not in OWN_ATTRIBUTES]
    return itemgetter(*names, "training")  # once more, as a single name would give no tuple


def inner_values(values: Iterator[Any]) -> list[Any]:
    """Find what can be changed inside of attributes: a configuration's fields, what lists and dictionaries hold.

    Returns:
        For each object that holds others a collection of these, which shows what it will hold later.
    """
    found: dict[int, Any] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value is None or isinstance(value, LEAVES) or id(value) in found:
            continue
        inner = value if isinstance(value, (list, tuple, set)) else value if isinstance(value, dict) else None
        if inner is None:
            inner = getattr(value, "__dict__", {})
        found[id(value)] = inner.values() if isinstance(inner, dict) else inner
        waiting.extend(found[id(value)])
    return list(found.values())


def attention_backends(modules: list[nn.Module]) -> set[str]:
    """Names of the attention backends that modules call, as their configurations have it."""
    configs = [getattr(module, "config", None) for module in modules]
    return {str(config._attn_implementation) for config in configs if isinstance(config, PreTrainedConfig)}


def own_files(kinds: list[type]) -> dict[str, None]:
    """Names of the zoo's files that a forward may run through, so that a function replaced in one of them is seen.

    Returns:
        The files that the zoo's classes are in, and those of functions that they import.
    """
    names = dict.fromkeys(kind.__module__ for kind in kinds if kind.__module__.startswith(OURS))
    functions = [value for name in names for value in vars(sys.modules[name]).values() if type(value) is FunctionType]
    return names | dict.fromkeys(name for one in functions if (name := one.__module__ or "").startswith(OURS))


def can_be_captured(model: nn.Module) -> bool:
    """Whether nothing happens in a model's forward but what its classes say, and these are known.

    Returns:
        False on accelerators and in training; where hooks, other libraries or methods put in the place of others have
        their hands in it; and of parts that come with plugins, of which nobody knows what else they do.
    """
    modules = list(model.modules())
    names = attention_backends(modules)
    return (
        all(tensor.device.type == "cpu" for tensor in model.parameters())
        and not any(module.training or any(HOOKS(module)) or is_patched(module) for module in modules)
        and all(map(is_known, {type(module) for module in modules}))
        and all(isinstance(one, BuiltinFunctionType) or comes_from(one, KNOWN_FUNCTIONS) for one in vars(F).values())
        and all(comes_from(ALL_ATTENTION_FUNCTIONS.get(name), KNOWN_FUNCTIONS) for name in names)
        and all(comes_from(ALL_MASK_ATTENTION_FUNCTIONS.get(name), KNOWN_FUNCTIONS) for name in names)
    )


def is_patched(module: nn.Module) -> bool:
    """Whether a module has something of its own in the place of a method of its class."""
    return any(callable(getattr(type(module), name, None)) for name in vars(module))


def is_known(kind: type) -> bool:
    """Whether a class is the zoo's or PyTorch's, and nobody has put other methods into it or its bases."""
    return kind.__module__.startswith(KNOWN_MODULES) and all(
        comes_from(value, KNOWN_FUNCTIONS)
        for base in kind.__mro__
        if base.__module__.startswith(KNOWN_MODULES)
        for value in vars(base).values()
    )


def comes_from(value: Any, places: tuple[str, ...]) -> bool:
    """Whether a function was written in one of some modules; what is no function was.

    Args:
        value: A function, a method, or anything else that a class may hold.
        places: How the modules' names begin.

    Returns:
        False of other functions, and of objects that are called in their place.
    """
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        return f"{function.__globals__.get('__name__', '')}.".startswith(places)
    return not callable(function) or isinstance(function, type) or type(function).__module__.startswith(places)
