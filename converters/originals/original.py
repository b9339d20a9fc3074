"""Base of the converters of the five documents."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.building.builder import config as make_config
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.models.fields import Fields
from zoo.registry import VARIANTS

from ..checkpoint import Checkpoint
from ..converter import Converter, Plan
from ..errors import CheckpointKeysError, ConversionError, MissingHintError, NotConvertibleError
from ..key_map import KeyMap
from ..transforms import Tensors, Transform, join


def one_of(aliases: int) -> Transform:
    """Take the one tensor that several keys hold."""
    return Transform("unite", agree, lambda tensors: tensors * aliases)


def agree(tensors: Tensors) -> Tensors:
    first, *others = tensors
    for other in others:
        if not torch.allclose(first, other, rtol=0, atol=0, equal_nan=True):
            raise ValueError("these keys are names of one tensor, but their values differ")
    return (first,)


def join_aliases(heads: int, aliases: int) -> Transform:
    """Concatenate heads that several keys hold each."""
    joined, one = join(heads), one_of(aliases)
    return Transform(
        "join",
        lambda tensors: joined.forward(
            tuple(one.forward(tensors[head * aliases : (head + 1) * aliases])[0] for head in range(heads))
        ),
        lambda tensors: tuple(alias for head in joined.backward(tensors) for alias in one.backward((head,))),
    )


COMMON = (  # Fields in which two models of any document may differ
    *("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings"),
    *("pad_token_id", "bos_token_id", "eos_token_id"),
)

NOT_COMPUTED = {"use_cache", "initializer", "initializer_range", "quirks", "provider"}
"""Settings that change nothing in what a model computes."""


@dataclass(frozen=True)
class Layout:
    """Sizes that follow from the keys and shapes of a checkpoint."""

    model_class: type[ZooPreTrainedModel]  # The class of the zoo that computes the same
    task: str
    settings: dict[str, Any] = field(default_factory=dict)


class Original(Converter):
    """The converter of a document, which is one variant with all its quirks."""

    variant: str
    signatures: tuple[str, ...]  # Keys of the document's modules that no other format has
    unsaid: ClassVar[Mapping[str, str]] = {}  # Fields that no state_dict holds, and their names in the document
    unsaid_of_task: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # The same that only one of its tasks has
    free: tuple[str, ...] = ()  # Further fields in which two models of the document may differ
    optional_quirks: tuple[str, ...] = ()  # Defects that one of its versions has and another has not

    def recognises(self, keys: Collection[str]) -> bool:
        return any(signature in keys for signature in self.signatures)

    @abstractmethod
    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        """Infer fields from keys and shapes."""

    @abstractmethod
    def ask(self, module: Any) -> dict[str, Any]:
        """Read fields of a live module that its state_dict does not hold."""

    @abstractmethod
    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """Write the table for one model."""

    def plan(
        self, checkpoint: Checkpoint, *, quirks: Iterable[str] | None = None, keep_dead: bool = False, **hints: Any
    ) -> Plan:
        layout = self.layout(Shapes(checkpoint.tensors, self.name))
        for name, value in layout.settings.items():
            if hints.setdefault(name, value) != value:
                raise ConversionError(f"{name}={hints[name]} was given, but this checkpoint has {name}={value}")
        if checkpoint.module is not None:
            with suppress(AttributeError):
                hints = {**self.ask(checkpoint.module), **hints}
        if "keep_dead" in VARIANTS.get(self.variant).defaults:
            hints["keep_dead"] = keep_dead
        require_hints(self.name, {**self.unsaid, **self.unsaid_of_task.get(layout.task, {})}, hints)
        quirks = tuple(VARIANTS.get(self.variant).quirks) if quirks is None else quirks
        config = make_config(self.variant, layout.task, quirks=quirks, **hints)
        return Plan(layout.model_class, config, self.key_map(layout.model_class, config))

    def plan_back(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        if config.variant != self.variant:
            raise NotConvertibleError(self.name, [f"variant {config.variant!r} instead of {self.variant!r}"])
        variant = VARIANTS.get(self.variant)
        lacking = [
            f"the quirk {name} is off"
            for name, quirk in variant.quirks.items()
            if name not in (*config.quirks, *self.optional_quirks)
            and not (quirk.overrides and quirk.overrides.keys() <= NOT_COMPUTED)
        ]
        quirks = [name for name in variant.quirks if name in config.quirks or name not in self.optional_quirks]
        free = {name: getattr(config, name) for name in (*self.unsaid, *COMMON, *self.free) if hasattr(config, name)}
        stacks = {name: getattr(config, name) for name in ("is_decoder", "is_encoder_decoder", "add_cross_attention")}
        original = make_config(self.variant, quirks=quirks, **free, **stacks).to_dict()
        given = config.to_dict()
        differing = [
            f"{name} is {given.get(name)!r} instead of {original[name]!r}"
            for name in sorted(Fields.__annotations__.keys() - NOT_COMPUTED)
            if name in original and given.get(name) != original[name]
        ]
        if lacking or differing:
            raise NotConvertibleError(self.name, lacking + differing)
        return self.key_map(model_class, config)


class Shapes(dict[str, Tensor]):
    """A checkpoint that sizes are read from: a missing key raises a ConversionError."""

    def __init__(self, tensors: Mapping[str, Tensor], owner: str) -> None:
        super().__init__(tensors)
        self.owner = owner

    def __missing__(self, key: str) -> Tensor:
        given = {name: tuple(value.shape) for name, value in self.items()}
        raise CheckpointKeysError(given, {**given, key: ()}, self.owner)


def require_hints(converter: str, needed: Mapping[str, str], hints: Mapping[str, Any]) -> None:
    """Raise MissingHintError for fields, with their names in the document, that were not given."""
    missing = {name: theirs for name, theirs in needed.items() if name not in hints}
    if missing:
        example = f"zoo.convert(source, {converter!r}, {', '.join(f'{name}=...' for name in missing)})"
        raise MissingHintError(converter, missing, example)


def count(keys: Iterable[str], pattern: str) -> int:
    return len({found[1] for key in keys if (found := re.match(pattern, key))})
