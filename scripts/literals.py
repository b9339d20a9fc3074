"""Writes names and settings for editors and type checkers: zoo/building/literals.py and zoo/building/keywords.py.

python scripts/literals.py
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.building.dispatch import HUB_OPTIONS
from zoo.building.loading import LOADING
from zoo.building.settings import setting_cards, values_of
from zoo.models import ZooConfig
from zoo.models.fields import BESIDE_FIELDS, Fields
from zoo.models.parts import PART_FIELDS
from zoo.registry import TASKS, VARIANTS, WEIGHTS, Registry
from zoo.training import train
from zoo.training.arguments import ZooTrainingArguments

WIDTH = 120
PACKAGE = Path(__file__).parents[1] / "zoo/building"

NAMES = '''"""Names for editors and type checkers. Written by scripts/literals.py: do not edit.

A plugin's names are not here; any text is a valid name, so that a plugin's variant is one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

# fmt: off
'''

KEYWORDS = '''"""Settings for editors and type checkers. Written by scripts/literals.py: do not edit.

A plugin's parts and settings are not here. They are given where a type checker looks at neither, in the name
(`zoo.build("pre-norm:position=my-rope")`) or as `**settings`, a `dict[str, Any]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from zoo.building.completion import Keywords

# fmt: off

'''

TYPES = {
    "FilledInt": "int | None",
    "FilledBool": "bool | None",
    "FilledFloat": "float | None",
    "list[bool] | None": "Sequence[bool] | None",
}
"""Annotations of the configuration, and what may be given."""

NOT_GIVEN = frozenset({"variant", "quirks", "providers", "is_decoder", "is_encoder_decoder", "add_cross_attention"})
"""Fields that the name and the task decide."""

SPECIAL = {
    "layer_types": 'Sequence[Literal["full_attention", "sliding_attention"]]',
    "rope_parameters": "dict[str, Any]",
    "mup_base_width": "int",
    "num_nextn_predict_layers": "int",
    "mtp_loss_weight": "float",
    "latent_norm_eps": "float | None",
    "num_labels": "int",
    "hidden_act": "str",
}
"""Types without an annotation, or that depend on transformers' version."""


def modules() -> dict[Path, str]:
    variants = built_in(VARIANTS)  # first, since files of variants register parts as well
    described = {card.name: card.description for card in setting_cards()}
    own = {name: kind for name, kind in settings().items() if name not in NOT_GIVEN}
    names = [
        NAMES,
        *alias("VariantName", variants, "The built-in variants."),
        *alias("WeightsName", built_in(WEIGHTS), "Weights that have a name."),
        *alias("TaskName", TASKS, "Tasks of models."),
    ]
    keywords = [
        KEYWORDS,
        "class Settings(Keywords, total=False):",
        '    """Fields of the configuration, and options of the built-in parts and variants."""\n',
        *(line for name, kind in own.items() for line in field(name, kind, described.get(name, ""))),
        "\n",
        "class BuildOptions(Settings, total=False):",
        '    """Options of [`zoo.build`][] besides settings."""\n',
        *(line for name in sorted({*LOADING, *HUB_OPTIONS}) for line in field(name, "Any", "")),
        "\n",
        "class TrainingOptions(Keywords, total=False):",
        '    """transformers\' training arguments, as [`zoo.train`][] and [`zoo.compare`][] take them."""\n',
        *(line for name, kind in training_options().items() for line in field(name, kind, "")),
    ]
    written = {PACKAGE / "literals.py": names, PACKAGE / "keywords.py": keywords}
    return {file: "\n".join(lines).strip() + "\n" for file, lines in written.items()}


def filled(text: str, indent: str = "") -> str:
    """A line, or a long type with its words in full lines."""
    if len(indent + text) <= WIDTH:
        return indent + text
    before, words, after = re.split(r"(?<=Literal\[)(.*)(?=\])", text)
    inner = indent + "    "
    listed = textwrap.wrap(f"{words},", WIDTH, initial_indent=inner, subsequent_indent=inner, break_on_hyphens=False)
    return "\n".join([indent + before, *listed, indent + after])


def built_in(registry: Registry[Any]) -> list[str]:
    """The names that no plugin has brought, without aliases."""
    return sorted(name for name in registry if registry.origin(name).built_in)


def alias(name: str, words: Iterable[str], description: str) -> Iterator[str]:
    yield f'{filled(f"{name}: TypeAlias = {literal(words)}")}\n"""{description}"""\n'


def literal(words: Iterable[str]) -> str:
    return f"Literal[{', '.join(map(json.dumps, words))}]"


def field(name: str, kind: str, description: str) -> Iterator[str]:
    yield filled(f"{name}: {kind}", "    ")
    if description:
        yield textwrap.indent(textwrap.fill(f'"""{description}"""', 116, break_on_hyphens=False), "    ")


def settings() -> dict[str, str]:
    """Find every setting that `zoo.config` takes of what is built in, and its type."""
    annotations: dict[str, str] = Fields.__annotations__
    found = {name: TYPES.get(kind, kind) for name, kind in annotations.items() if "ClassVar" not in kind}
    found |= {name: choice(name, found[name]) for name in found}
    found |= {name: kind_of(value) for name, value in options()}
    found |= {other: found[name] for other, name in ZooConfig.attribute_map.items()}
    inherited = [one.name for one in dataclasses.fields(ZooConfig) if one.init and one.name not in {*found, *LOADING}]
    found |= dict.fromkeys(sorted(inherited), "Any")
    return found | {name: choice(name, "Any") for name in sorted(BESIDE_FIELDS)} | SPECIAL


def training_options() -> dict[str, str]:
    """Find the training arguments that are no parameter of `zoo.train`, and the types that can be written plainly."""
    own = {name for name, one in inspect.signature(train).parameters.items() if one.default is not ...}
    types = {one.name: one.type for one in dataclasses.fields(ZooTrainingArguments) if one.init}
    kinds = {name: kind.__name__ if isinstance(kind, type) else str(kind) for name, kind in types.items()}
    return {
        name: kind if set(kind.split(" | ")) <= {"int", "float", "bool", "str", "None"} else "Any"
        for name, kind in kinds.items()
        if name not in own
    }


def choice(name: str, kind: str) -> str:
    """Narrow a type down to the words that a setting takes."""
    words = list(values_of(name))
    if name in PART_FIELDS:
        known = built_in(PART_FIELDS[name])
        words = [word for word in words if word in known or word not in PART_FIELDS[name]]
    if not words or name in SPECIAL:
        return kind
    others = [part for part in kind.split(" | ") if part not in ("str", "Any")]
    return " | ".join([literal(word for word in words if word != "NUMBER"), *others])


def options() -> Iterator[tuple[str, Any]]:
    """Find what built-in parts and variants have for themselves, with their defaults."""
    for registry in PART_FIELDS.values():
        for name in built_in(registry):
            yield from getattr(registry.get(name), "options", {}).items()
    fields = {one.name for one in dataclasses.fields(ZooConfig)} | BESIDE_FIELDS.keys()
    for name in built_in(VARIANTS):
        variant = VARIANTS.get(name)
        for values in (variant.defaults, *variant.presets.values()):
            yield from ((key, value) for key, value in values.items() if key not in fields)


def kind_of(value: Any) -> str:
    """Tell the type of an option from its default."""
    return type(value).__name__ if isinstance(value, (bool, int, float, str)) else "Any"


if __name__ == "__main__":
    for file, text in modules().items():
        file.write_text(text, encoding="utf-8")
