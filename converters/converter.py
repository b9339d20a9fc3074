"""Base class of converters, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.registry import Registry

from .checkpoint import Checkpoint
from .errors import UnknownConverterError
from .key_map import KeyMap


@dataclass(frozen=True)
class Plan:
    """How a checkpoint becomes a model of the zoo."""

    model_class: type[ZooPreTrainedModel]
    config: ZooConfig  # Its complete configuration
    key_map: KeyMap  # The checkpoint's keys and the model's parameters


class Converter(ABC):
    """Knows one format of checkpoints, in both directions.

    Attributes may be in the header of a subclass as well as in its body; one with a name of its own is registered.

    Attributes:
        name: The format's name.
        variant: The variant that is this format's own, None if several are.
    """

    name: str
    variant: str | None = None

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__()
        for attribute, value in attributes.items():
            setattr(cls, attribute, value)
        if "name" in vars(cls):
            CONVERTERS.register(cls.name, cls(), module=cls.__module__)

    @abstractmethod
    def recognises(self, keys: Collection[str]) -> bool:
        """Whether a checkpoint with these keys is in this format."""

    @abstractmethod
    def plan(self, checkpoint: Checkpoint, **hints: Any) -> Plan:
        """Plan the way in, with hints for fields that the checkpoint does not hold.

        Raises:
            ConversionError: When hints are missing, or keys from which sizes are read.
        """

    @abstractmethod
    def plan_back(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """The key map to read from right to left, for a class of model of the zoo.

        Raises:
            NotConvertibleError: When the other implementation does not compute what this model does.
        """


CONVERTERS: Registry[Converter] = Registry(
    "converter", built_in="zoo.converters.originals", error=UnknownConverterError, definition=type
)
"""All converters, by the name of the format."""
