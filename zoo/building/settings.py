"""What can be set, and to what, read from the configuration's docstring, its enumerations and the registries."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from zoo.base.errors import UnknownOverrideError
from zoo.building.proportions import SIZES
from zoo.models.choices import PARAMETRIZATIONS, AttentionScale
from zoo.models.fields import GATED_ACTIVATIONS, Fields
from zoo.models.parts import MIXERS, PART_FIELDS
from zoo.models.validation import CHOICES, LAYER_TYPES, OPTIONAL

BESIDE_FIELDS = {
    "layer_types": "The kind of every layer, or a pattern repeated over them; all sliding if only a window is given, "
    "every other the mixer's if only that is.",
    "rope_parameters": "`rope_theta`, `rope_type` and what that type reads, as in transformers; for rotary positions.",
    "parametrization": "How initial weights, scales and learning rates depend on the width.",
    "mup_base_width": "The hidden size at which parametrization=mup is the standard one, 256 if not given.",
    "sizes": "Whether sizes that are not given follow hidden_size and num_attention_heads, follow if not given.",
    "num_nextn_predict_layers": "How many tokens behind the next one a causal language model learns to predict, by a "
    "layer each that runs in training only (multi-token prediction); none if not given.",
    "mtp_loss_weight": "What their loss counts beside that of the next token, 0.3 if not given.",
}
"""Settings that every configuration understands and that are no fields of it."""


@dataclass(frozen=True)
class SettingCard:
    """What there is to know about one field of the configuration.

    Attributes:
        name: The field.
        description: What it is.
        default: Its value in a plain configuration; a variant may have another one.
    """

    name: str
    description: str
    default: Any

    @cached_property
    def values(self) -> Mapping[str, str]:
        """The words that it takes, each with a line; empty where any number, or true and false, will do."""
        return values_of(self.name)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**dataclasses.asdict(self), "values": dict(self.values)}


def setting_cards() -> list[SettingCard]:
    """Describe every setting that every variant takes."""
    described = described_arguments(Fields.__doc__ or "") | BESIDE_FIELDS
    defaults = {one.name: one.default for one in dataclasses.fields(Fields)}
    own = [name for name in described if name in defaults and name != "providers"]
    return [SettingCard(name, described[name], defaults.get(name)) for name in (*own, *BESIDE_FIELDS)]


def describe_setting(name: str) -> SettingCard:
    """Describe one setting."""
    cards = {card.name: card for card in setting_cards()}
    if name not in cards:
        raise UnknownOverrideError(name, sorted(cards))
    return cards[name]


def values_of(name: str) -> dict[str, str]:
    """List the words that a setting takes."""
    values: dict[str, str] = {}
    if name in PART_FIELDS:
        values = {part: PART_FIELDS[name].summary(part) for part in PART_FIELDS[name]}
    elif name in CHOICES:
        values = member_docs(CHOICES[name]) | ({"none": "None of these."} if name in OPTIONAL else {})
    elif name == "attention_scale":
        values = member_docs(AttentionScale) | {"NUMBER": "This number."}
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
    """The first line of a docstring."""
    return inspect.cleandoc(documented.__doc__ or "").partition("\n")[0]


def member_docs(kind: type[Enum]) -> dict[str, str]:
    """Read the strings that stand below the members of an enumeration."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, behind in zip(definition.body, definition.body[1:], strict=False):
        match statement, behind:
            case ast.Assign(targets=[ast.Name(id=member)]), ast.Expr(value=ast.Constant(value=str(text))):
                docs[str(kind[member].value)] = " ".join(text.split())
    return docs


def described_arguments(docstring: str) -> dict[str, str]:
    """Read what a docstring says of arguments."""
    section = inspect.cleandoc(docstring).partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
