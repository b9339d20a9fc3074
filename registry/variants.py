"""Variants: data about named architectures, and the functions that build those which need code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from zoo.base.errors import (
    ConfigError,
    RegistrationError,
    UnknownPresetError,
    UnknownQuirkError,
    UnknownTagError,
    UnknownTaskError,
    UnknownVariantError,
    UnsupportedTaskError,
)

from .names import FAITHFUL, is_word, matching, require_task
from .plugins import Origin
from .table import Reference, Registry

Builder = TypeVar("Builder", bound=Callable[..., Any])
Settings = Mapping[str, Any]

BY_SETTINGS = "zoo.models.transformer:build_by_settings"  # The builder of variants that settings describe completely

SIZES: Mapping[str, Settings] = MappingProxyType(
    {
        "tiny": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128),
        "small": dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
        "base": dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048),
    }
)
"""Presets that every variant has. A variant's own preset of the same name is added on top."""


@dataclass(frozen=True)
class Quirk:
    """A defect of an original implementation, which can be switched on.

    Args:
        description: Effect, in a sentence.
        overrides: The configuration fields that make it. Where they cannot, the variant's builder asks
            `config.has_quirk(name)`.
        generates: Whether a model with it can generate, token by token.
        one_length: Whether a model with it needs source and target of one length.
    """

    description: str
    overrides: Settings = field(default_factory=dict)
    generates: bool = True
    one_length: bool = False


@dataclass(frozen=True, kw_only=True)
class Described:
    """The words about a variant, which its card has as well.

    Attributes:
        name: Its name, without aliases.
        summary: A line about it.
        description: The rest of the text about it.
        source: Where the design or the code comes from.
        paper: The paper that describes it, and the section.
        tasks: Tasks that it can be built for; the first is the default.
        tags: Words to find it by.
        aliases: Its other names.
        deprecated: Why it should no longer be used, and what instead.
    """

    name: str
    summary: str = ""
    description: str = ""
    source: str
    paper: str | None = None
    tasks: tuple[str, ...]
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    deprecated: str | None = None


@dataclass(frozen=True, kw_only=True)
class Variant(Described):
    """A named architecture.

    Attributes:
        code: Its builder: a function, or "module:function", which is imported when a model is built.
        origin: The module that registered it, and its distribution.
        defaults: Configuration fields in which it differs from the configuration's defaults.
        task_defaults: The same for a single task.
        presets: The same for a named size.
        quirks: The defects of the original that can be switched on.
        limits: Limitations, a sentence each.
        deviations: Differences from its paper, a sentence each. Verdicts about it show them.
        place: The file and line of its declaration, None where a function is registered.
    """

    code: str | Callable[..., Any]
    origin: Origin
    defaults: Settings = field(default_factory=dict)
    task_defaults: Mapping[str, Settings] = field(default_factory=dict)
    presets: Mapping[str, Settings] = field(default_factory=dict)
    quirks: Mapping[str, Quirk] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    place: tuple[str, int] | None = None

    @cached_property
    def builder(self) -> Callable[..., Any]:
        """Called with a configuration, returns the model's architecture."""
        return Reference(self.code).load() if isinstance(self.code, str) else self.code

    @property
    def default_task(self) -> str:
        """The task it is built for when none is given."""
        return self.tasks[0]

    def check_task(self, task: str | None = None) -> str:
        """Raise UnknownTaskError or UnsupportedTaskError for a task that it cannot be built for."""
        if task is not None and task not in self.tasks:
            raise UnsupportedTaskError(require_task(task), self.name, self.tasks)
        return str(task or self.tasks[0])

    def check_quirks(self, quirks: Iterable[str] = (), *, faithful: bool = False) -> tuple[str, ...]:
        """The names of quirks, each once, in the order in which the variant declares them.

        Raises:
            UnknownQuirkError: When it has no such quirk; underscores count as hyphens.
            ConfigError: When all are meant and it has none.
        """
        owner = f"variant {self.name!r}"
        if faithful and not self.quirks:
            raise ConfigError(f"{owner} has no quirks, so {FAITHFUL!r} has nothing to switch on; leave it out")
        wanted = {_hyphenated(quirk): quirk for quirk in _tuple(quirks)}
        if unknown := [given for name, given in wanted.items() if name not in self.quirks]:
            raise UnknownQuirkError(unknown[0], self.quirks, owner=owner)
        return tuple(name for name in self.quirks if faithful or name in wanted)

    def settings(
        self, task: str | None = None, *, preset: str | None = None, quirks: Iterable[str] = (), faithful: bool = False
    ) -> dict[str, Any]:
        """Configuration fields and values: the defaults, changed by the task's, then by the preset, then by the quirks.

        Errors are those of `check_task` and `check_quirks`, and UnknownPresetError.
        """
        if preset is not None:
            UnknownPresetError.check(preset, valid=self.presets, owner=f"variant {self.name!r}")
        settings = {**self.defaults, **self.task_defaults.get(self.check_task(task), {})}
        settings.update({} if preset is None else self.presets[preset])
        for quirk in self.check_quirks(quirks, faithful=faithful):
            settings.update(self.quirks[quirk].overrides)
        return settings


VARIANTS: Registry[Variant] = Registry(
    "variant", built_in="zoo.variants", error=UnknownVariantError, definition=lambda variant: variant.code
)
"""All variants, by name."""


def register(
    name: str,
    summary: str | None = None,
    *,
    tasks: Iterable[str],
    source: str,
    paper: str | None = None,
    tags: Iterable[str] = (),
    defaults: Settings | None = None,
    task_defaults: Mapping[str, Settings] | None = None,
    presets: Mapping[str, Settings] | None = None,
    quirks: Mapping[str, str | Quirk] | None = None,
    limits: Iterable[str] = (),
    deviations: Iterable[str] = (),
    aliases: Iterable[str] = (),
    deprecated: str | None = None,
    override: bool = False,
    builder: str | Callable[..., Any] = BY_SETTINGS,
) -> Callable[[Builder], Builder]:
    """Register a variant: with a summary as data, without one as a decorator for its builder function.

    Args:
        summary: A line about it, and after an empty line the rest of the card's text. A decorated function has both in
            its docstring.
        tasks: Tasks that it can be built for; the first is the default.
        source: Where the design or the code comes from.
        paper: The paper that describes it, and the section.
        tags: Words to find it by.
        defaults: Configuration fields in which it differs from the configuration's defaults.
        task_defaults: The same for single tasks: `{task: {field: value}}`.
        presets: The same for named sizes: `{preset: {field: value}}`, added to the standard `SIZES`.
        quirks: Defects of the original that can be switched on, by names with hyphens (underscores become hyphens):
            descriptions, or `Quirk`s.
        limits: Limitations, a sentence each.
        deviations: Differences from its paper, a sentence each.
        aliases: Its other names.
        deprecated: Why it should no longer be used, and what instead.
        override: Whether it may take the name of another variant.
        builder: Its builder, if settings alone do not define it: "module:function", imported by `zoo.build`, or a
            function. It takes a configuration and returns a [`zoo.models.Transformer`][].

    Returns:
        The decorator, which returns the function; not used with a summary.

    Raises:
        UnknownTaskError: When the task is unknown.
        RegistrationError: When names are missing or malformed.
        NameCollisionError: When the name is taken. The message names the owner.
    """
    frame = sys._getframe(1)
    module = frame.f_globals.get("__name__", "__main__")
    supported = tuple(require_task(task) for task in _tuple(tasks))
    if not supported:
        raise RegistrationError(f"variant {name!r} was given no task; name at least one that it can be built for")
    UnknownTaskError.check(*(task_defaults or {}), valid=supported, owner=f"variant {name!r}")
    own_quirks = {
        _hyphenated(name): quirk if isinstance(quirk, Quirk) else Quirk(quirk) for name, quirk in (quirks or {}).items()
    }
    own_presets = presets or {}
    for word in (*own_quirks, *own_presets):
        if word == FAITHFUL or not is_word(word):
            raise RegistrationError(
                f"variant {name!r} calls a quirk or preset {word!r}; valid are letters, digits, '.', '-' and '_', "
                f"but not {FAITHFUL!r}, which means all quirks"
            )

    def add(code: str | Callable[..., Any], text: str, place: tuple[str, int] | None = None) -> None:
        first, _, description = inspect.cleandoc(text).partition("\n")
        variant = Variant(
            name=name,
            code=code,
            tasks=supported,
            source=source,
            origin=Origin.of(module),
            paper=paper,
            summary=first,
            description=description.strip(),
            tags=_tuple(tags),
            defaults=dict(defaults or {}),
            task_defaults={task: dict(settings) for task, settings in (task_defaults or {}).items()},
            presets={size: {**SIZES.get(size, {}), **own_presets.get(size, {})} for size in {**SIZES, **own_presets}},
            quirks=own_quirks,
            limits=_tuple(limits),
            deviations=_tuple(deviations),
            aliases=_tuple(aliases),
            deprecated=deprecated,
            place=place,
        )
        names: dict[str, Any] = {"aliases": variant.aliases, "deprecated": deprecated}
        VARIANTS.register(name, variant, override=override, module=module, **names)

    def decorate(function: Builder) -> Builder:
        add(function, function.__doc__ or "")
        return function

    if summary is not None:
        add(builder, summary, (frame.f_code.co_filename, frame.f_lineno))
    return decorate


def active_quirks(config: Any) -> tuple[Quirk, ...]:
    """The quirks that a model's configuration has switched on; none of a class that is not the zoo's."""
    names = getattr(config, "quirks", ())
    return tuple(VARIANTS.get(config.variant).quirks[name] for name in names)


def list_variants(pattern: str | Iterable[str] = "*", task: str | None = None, tag: str | None = None) -> list[str]:
    """List variants.

    Args:
        pattern: A name with wildcards ("*-norm"), or several; one must match. A pattern that begins with "!"
            leaves out what it matches.
        task: Only variants that can be built for this task.
        tag: Only variants with this tag.

    Returns:
        The names, sorted, without aliases and deprecated ones.

    Raises:
        UnknownTaskError: When the task is unknown.
        UnknownTagError: When no variant has this tag.
    """
    variants = {name: VARIANTS.get(name) for name in VARIANTS.names()}
    if task is not None:
        task = require_task(task)
    if tag is not None:
        UnknownTagError.check(tag, valid=sorted({tag for variant in variants.values() for tag in variant.tags}))
    able = [name for name, variant in variants.items() if task is None or task in variant.tasks]
    return matching([name for name in able if tag is None or tag in variants[name].tags], pattern)


def _tuple(words: str | Iterable[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _hyphenated(name: str) -> str:
    return name.replace("_", "-")
