"""Base class of native formats: a class of transformers as the zoo knows it."""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from zoo.models import ZooConfig
from zoo.registry import Registry, Task

from ..errors import LostInputWarning, NoCounterpartError, UnknownConverterError
from ..key_map import KeyMap
from ..symmetries.base import State
from ..symmetries.route import Needs
from ..transforms import SAME, Transform

Pair = tuple[Any, Any] | tuple[Any, Any, Transform]
"""A native key (or several), the zoo's, and the transform between them."""

PLACEHOLDERS = {"{n}": r"(\d+)", "{p}": r"(weight|bias)", "{s}": r"(encoder|decoder)"}
"""Short for groups in keys: a layer's number, a linear layer's parameter, a stack."""


class UnknownNativeError(UnknownConverterError):
    """No such class of transformers is known."""

    kind = "model type of transformers"


class NativeFormat(ABC):
    """A family of classes of transformers with one configuration: its settings and keys, and those of the zoo."""

    name: ClassVar[str]  # Name for users, which is its model type
    rank: ClassVar[int] = 1000  # Of several classes that fit equally well, that of the lowest rank is taken
    # Model types of transformers that are read in this format; the first is written
    model_types: ClassVar[tuple[str, ...]]
    variant: ClassVar[str]  # The variant that its checkpoints become
    stack: ClassVar[str]  # Which stacks its models have: "encoder", "decoder" or "encoder-decoder"
    classes: ClassVar[Mapping[str, str]]  # The class of transformers for every task
    prefix: ClassVar[str]  # Prefix of a body's weights in a model with a head
    computes_in_double: ClassVar[bool] = True  # Whether its classes compute anything in float64
    # Phrases for settings of a model that the class lacks, by field
    reasons: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @abstractmethod
    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """The key map for the task's head: native keys on the left, the zoo's on the right."""

    @abstractmethod
    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Fields of [`ZooConfig`][], for a task, that differ from the variant's defaults, or might."""

    @abstractmethod
    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Fields of the native configuration, for settings that fulfil `needs`."""

    @abstractmethod
    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Values that the classes require, by field, for the settings of a model; other fields are free."""

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Obstacles other than settings, such as weights."""
        return []

    def meaningless(self, task: str) -> tuple[str, ...]:
        """Names of native weights that are stored twice, or that the zoo has no use for."""
        return ()

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Prepare native weights for the key map, with a warning if exports will have another model type."""
        if native.model_type != self.model_types[0]:
            warnings.warn(
                f"the way back from the zoo is {self.model_types[0]!r}, {native.model_type!r} has the same code; "
                "a tokenizer that is chosen by the model type has to be named",
                LostInputWarning,
                stacklevel=2,
            )
        meaningless = self.meaningless(task)
        return {name: tensor for name, tensor in state.items() if name not in meaningless}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Complete native weights after the key map: add what is stored twice or means nothing."""
        return state

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Add settings that only weights show (computed positions, tied embeddings); return the other weights."""
        return state

    def output(self, config: ZooConfig, task: str) -> str:
        """Where the class returns the model's output: "logits", "last_hidden_state" or "hidden_states[-2]"."""
        return "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        return []

    def refuse(self, native: Any, **expected: Any) -> None:
        """Raise NoCounterpartError, naming every field with another value than the only one expected."""
        given = {field: getattr(native, field, value) for field, value in expected.items()}
        wrong = [
            f"{field}={given[field]!r} is set, only {value!r} can be converted"
            for field, value in expected.items()
            if given[field] != value
        ]
        if wrong:
            raise NoCounterpartError(self.name, wrong)


NATIVE: Registry[NativeFormat] = Registry(
    "native class", built_in="zoo.converters.native", error=UnknownNativeError, definition=type
)
"""All native formats by name. Plugins may add some."""


def native_format(cls: type[NativeFormat]) -> type[NativeFormat]:
    """Register a native format under its name."""
    NATIVE.register(cls.name, cls(), module=cls.__module__)
    return cls


def table(*pairs: Pair, owner: str) -> KeyMap:
    """Write a key map with placeholders instead of regular expressions."""
    return KeyMap.of(*(_row(*pair) for pair in pairs), owner=owner)


def _row(native: Any, zoo: Any, transform: Transform = SAME) -> tuple[Any, Any, Transform]:
    lefts = (native,) if isinstance(native, str) else native
    rights = (zoo,) if isinstance(zoo, str) else zoo
    order = re.findall(r"\{\w\}", lefts[0])

    def pattern(key: str) -> str:
        for placeholder in order:
            key = key.replace(placeholder, f"<{placeholder[1]}>")
        key = re.escape(key)
        for placeholder in order:
            key = key.replace(f"<{placeholder[1]}>", PLACEHOLDERS[placeholder])
        return f"^{key}$"

    def template(key: str) -> str:
        for place, placeholder in enumerate(order):
            key = key.replace(placeholder, f"\\{place + 1}")
        return key

    return tuple(map(pattern, lefts)), tuple(map(template, rights)), transform
