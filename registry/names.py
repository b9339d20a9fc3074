"""Names of tasks, and names with settings: `vanilla@small+cross-attention-reuses-self:dropout=0.2,position=rotary`.

    NAME[@PRESET][+QUIRK ...][:KEY=VALUE[,KEY=VALUE ...]]

`+faithful` switches all quirks on. A value is a Python literal (`512`, `0.1`, `None`, `[1, 2]`, `'text'`), `true` or
`false`, or else a plain word.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from zoo.base.errors import ConfigError, NameSyntaxError, UnknownNameError, UnknownTaskError

FAITHFUL = "faithful"
GRAMMAR = "NAME[@PRESET][+QUIRK ...][:KEY=VALUE[,KEY=VALUE ...]]"

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SPEC = re.compile(rf"(?P<name>{_WORD})(?:@(?P<preset>{_WORD}))?(?P<quirks>(?:\+{_WORD})*)(?::(?P<settings>.*))?", re.S)
_WORD_PATTERN = re.compile(_WORD)
_BARE_VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS_WITH_MEANING = {"None": None, "True": True, "False": False, "true": True, "false": False}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def is_word(text: str) -> bool:
    """Whether a text may be a name: letters, digits, dots, hyphens and underscores, a letter or digit first."""
    return _WORD_PATTERN.fullmatch(text) is not None


def matching(names: Iterable[str], pattern: str | Iterable[str]) -> list[str]:
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    wanted = [text for text in patterns if not text.startswith("!")] or ["*"]
    unwanted = [text[1:] for text in patterns if text.startswith("!")]
    found = [name for name in names if any(fnmatchcase(name, text) for text in wanted)]
    return [name for name in found if not any(fnmatchcase(name, text) for text in unwanted)]


@dataclass(frozen=True)
class VariantSpec:
    """A variant's name and the settings that go with it. `str()` writes it as `parse_name` reads it.

    Args:
        preset: A preset of the variant, e.g. "small".
        quirks: Quirks to switch on.
        faithful: Whether to switch all quirks on.
        overrides: Configuration fields and their values: numbers, strings, booleans, None, and lists, tuples and
            dictionaries of these.

    Raises:
        NameSyntaxError: When this could not be written as text.
    """

    name: str
    preset: str | None = None
    quirks: tuple[str, ...] = ()
    faithful: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for word in (self.name, *(() if self.preset is None else (self.preset,)), *self.quirks):
            if not is_word(word):
                raise NameSyntaxError(f"{word!r} was given; a name has letters, digits, '.', '-' and '_' only")
        if FAITHFUL in self.quirks:
            raise NameSyntaxError(f"{FAITHFUL!r} is not a quirk but all of them; give faithful=True")
        if repeated := next((quirk for quirk in self.quirks if self.quirks.count(quirk) > 1), None):
            raise NameSyntaxError(f"quirk {repeated!r} was given twice; give it once")
        for key, value in self.overrides.items():
            if not key.isidentifier():
                raise NameSyntaxError(f"setting {key!r} was given; it must be the name of a configuration field")
            write_value(value)

    def __str__(self) -> str:
        preset = f"@{self.preset}" if self.preset else ""
        quirks = "".join(f"+{quirk}" for quirk in ((FAITHFUL,) if self.faithful else ()) + self.quirks)
        settings = ",".join(f"{key}={write_value(value)}" for key, value in self.overrides.items())
        return f"{self.name}{preset}{quirks}{settings and ':' + settings}"


def parse_name(text: str) -> VariantSpec:
    """Read a name and the settings it carries.

    Args:
        text: For instance "vanilla", "vanilla+faithful", "d2l-style@small" or "pre-norm:position=rotary,dropout=0.2".

    Raises:
        NameSyntaxError: When it cannot be read.
    """
    match = _SPEC.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise NameSyntaxError(f"cannot read the name {text if type(text) is str else type(text)!r}; valid: {GRAMMAR}")
    quirks = match["quirks"].split("+")[1:]
    return VariantSpec(
        name=match["name"],
        preset=match["preset"],
        quirks=tuple(quirk for quirk in quirks if quirk != FAITHFUL),
        faithful=FAITHFUL in quirks,
        overrides={} if match["settings"] is None else _read_settings(match["settings"], text),
    )


def split_options(text: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Read a name that carries options only.

    Args:
        text: For instance "language-modeling:block_size=64", or "bpe:vocab_size=512".
        kind: Of what it is the name, for the message.

    Returns:
        The name, and the options.

    Raises:
        NameSyntaxError: When it cannot be read.
    """
    match = _SPEC.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match["preset"] or match["quirks"]:
        raise NameSyntaxError(f"cannot read the {kind} {text!r}; valid: NAME[:OPTION=VALUE[,OPTION=VALUE ...]]")
    return match["name"], {} if match["settings"] is None else _read_settings(match["settings"], text)


def parse_value(text: str) -> Any:
    """Read a setting's value, as `parse_name` and the command line do.

    Args:
        text: For instance "512", "0.1", "None", "true", "[1, 2]", "rotary" or "'512'".
    """
    text = text.strip()
    if text in _WORDS_WITH_MEANING:
        return _WORDS_WITH_MEANING[text]
    if not text or (text[0].isalpha() or text[0] == "_"):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if _is_plain(value) else text


def is_number(value: object) -> bool:
    """Whether a value is a number that one can compute with: no truth value, no NaN, and not beyond all floats."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_options(options: Mapping[str, object], defaults: Mapping[str, object], owner: str) -> None:
    """Refuse an option without a default, and a value of another kind than a boolean or a whole number by default."""
    UnknownNameError.check(*options, valid=defaults, kind="option", owner=owner)
    for option, value in options.items():
        kind, valid = (bool, "true or false") if isinstance(defaults[option], bool) else (int, "a whole number")
        if isinstance(defaults[option], int) and not isinstance(value, kind):
            raise ConfigError(f"{option}={value!r} is not valid; it is {valid}")


def _is_plain(value: object) -> bool:
    """Whether a value is made of what `write_value` can write."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.keys())) and all(map(_is_plain, value.values()))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or type(value) in (str, bool, int)


def write_value(value: Any) -> str:
    """Write a value such that `parse_value` reads it back."""
    if isinstance(value, str):
        text = str.__str__(value)  # of a string enum, the string
        return text if _BARE_VALUE.fullmatch(text) and text not in _WORDS_WITH_MEANING else repr(text)
    if not _is_plain(value):
        raise NameSyntaxError(f"the value {value!r} cannot be written in a name; give it as a keyword argument")
    return repr(value)


def _read_settings(text: str, whole: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for setting in split_at_commas(text, whole):
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not (equals and value and key.isidentifier()):
            raise NameSyntaxError(f"cannot read the setting {setting.strip()!r} in {whole!r}; valid: KEY=VALUE")
        if key in settings:
            raise NameSyntaxError(f"setting {key!r} was given twice in {whole!r}; give it once")
        settings[key] = parse_value(value)
    return settings


def split_at_commas(text: str, whole: str) -> Iterator[str]:
    """Split at the commas that are outside quotes and brackets."""
    start, quote, awaited = 0, "", []
    position = 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in _CLOSING:
            awaited.append(_CLOSING[character])
        elif awaited and character == awaited[-1]:
            awaited.pop()
        elif character == "," and not awaited:
            yield text[start:position]
            start = position + 1
        position += 1
    if quote or awaited:
        raise NameSyntaxError(f"{quote or awaited[-1]!r} is missing in the settings of {whole!r}")
    yield text[start:]


class Task(StrEnum):
    """The tasks, named as on the Hugging Face Hub. The task decides the stack and the head of a model."""

    FEATURE_EXTRACTION = "feature-extraction"
    """Hidden states, no head: `AutoModel`."""
    MASKED_LM = "masked-lm"
    """A bidirectional encoder that predicts masked tokens: `AutoModelForMaskedLM`."""
    SEQUENCE_CLASSIFICATION = "sequence-classification"
    """One label, or one number, a sequence: `AutoModelForSequenceClassification`."""
    TOKEN_CLASSIFICATION = "token-classification"
    """One label a token: `AutoModelForTokenClassification`."""
    CAUSAL_LM = "causal-lm"
    """A causal decoder that predicts the next token: `AutoModelForCausalLM`."""
    SEQ2SEQ_LM = "seq2seq-lm"
    """An encoder and a causal decoder that reads it, as for translation: `AutoModelForSeq2SeqLM`."""


TASKS = tuple(task.value for task in Task)
"""The names of all tasks."""


def require_task(name: str) -> str:
    """Check the name of a task.

    Returns:
        The same, as a plain string.

    Raises:
        UnknownTaskError: When the task is unknown.
    """
    UnknownTaskError.check(name, valid=TASKS)
    return Task(name).value
