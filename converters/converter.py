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
    """How a checkpoint becomes a model of the zoo.

    Args:
        model_class: The model's class.
        config: Its complete configuration.
        key_map: The checkpoint's keys and the model's parameters.
    """

    model_class: type[ZooPreTrainedModel]
    config: ZooConfig
    key_map: KeyMap


class Converter(ABC):
    """Knows one format of checkpoints, in both directions.

    Attributes:
        name: The format's name.
        variant: The variant that is this format's own, None if several are.
    """

    name: str
    variant: str | None = None

    @abstractmethod
    def recognises(self, keys: Collection[str]) -> bool:
        """Whether a checkpoint is in this format.

        Args:
            keys: The checkpoint's keys.

        Returns:
            True if it is.
        """

    @abstractmethod
    def plan(self, checkpoint: Checkpoint, **hints: Any) -> Plan:
        """Plan the way in.

        Args:
            checkpoint: In this format.
            hints: Fields that the checkpoint does not hold.

        Raises:
            ConversionError: When hints are missing, or keys that sizes are read from.
        """

    @abstractmethod
    def plan_back(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """Plan the way out.

        Args:
            model_class: Class of a model of the zoo.

        Returns:
            The key map to read from right to left.

        Raises:
            NotConvertibleError: When the other implementation does not compute what this model does.
        """


CONVERTERS: Registry[Converter] = Registry(
    "converter", built_in="zoo.converters.built_in", error=UnknownConverterError, definition=type
)
"""All converters, by the name of the format."""
