"""Settings with their values, read from the declarations of fields, enumerations and registries."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from zoo.base.errors import UnknownOverrideError
from zoo.building.proportions import SIZES
from zoo.models.choices import PARAMETRIZATIONS
from zoo.models.fields import BESIDE_FIELDS, GATED_ACTIVATIONS, LAYER_TYPES, SETTINGS, Fields
from zoo.models.parts import MIXERS, PART_FIELDS


@dataclass(frozen=True)
class SettingCard:
    """Description of one field of the configuration."""

    name: str
    description: str
    default: Any  # Its value in a plain configuration; a variant may have another one

    @cached_property
    def values(self) -> Mapping[str, str]:
        """The words that it takes, each with a line; empty where any number, or true and false, will do."""
        return values_of(self.name)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "values": dict(self.values)}


def setting_cards() -> list[SettingCard]:
    known = {**SETTINGS, **BESIDE_FIELDS}
    return [SettingCard(name, one.help, one.default) for name, one in known.items() if name != "providers"]


def describe_setting(name: str) -> SettingCard:
    cards = {card.name: card for card in setting_cards()}
    UnknownOverrideError.check(name, valid=sorted(cards))
    return cards[name]


def values_of(name: str) -> dict[str, str]:
    values: dict[str, str] = {}
    if name in PART_FIELDS:
        values = {part: PART_FIELDS[name].summary(part) for part in PART_FIELDS[name]}
    elif name in SETTINGS and (choices := SETTINGS[name].choices) is not None:
        values = member_docs(choices) | ({"none": "None of these."} if SETTINGS[name].default is None else {})
        values |= {"NUMBER": "This number."} if "float" in Fields.__annotations__[name] else {}
    elif name == "parametrization":
        values = dict(PARAMETRIZATIONS)
    elif name == "sizes":
        values = dict(SIZES)
    elif name == "layer_types":
        values = dict(
            zip(LAYER_TYPES, ("Attention to all positions.", "Attention within `sliding_window`."), strict=True)
        )
        kinds = {mixer: MIXERS.get(mixer).layer_type for mixer in MIXERS}
        values |= {kind: f"No attention: mixer={mixer}." for mixer, kind in kinds.items() if kind}
    if name == "feed_forward":
        values |= {word: f"gated, with hidden_act={act}" for word, act in GATED_ACTIVATIONS.items()}
    return values


def first_line(documented: Any) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n")[0]


def member_docs(kind: type[Enum]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=member)]), ast.Expr(value=ast.Constant(value=str(text))):
                docs[str(kind[member].value)] = " ".join(text.split())
    return docs
