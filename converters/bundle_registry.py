"""The registries of a bundle, which holds one variant and its parts. In the library this is `zoo.registry`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """Where a registered thing comes from.

    Args:
        built_in: Whether it is known to be the library's own; some of a bundle's code may come from a plugin.
        distribution: Which one does, if one does.
    """

    built_in: bool = False
    distribution: str | None = None


class Registry(Generic[T]):
    """A table of named things of one kind.

    Args:
        kind: Kind of the things, for messages.
        options: Ignored; the library's own registry knows more.
    """

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def register(self, name: str, value: T | None = None, *, aliases: Iterable[str] = (), **options: Any) -> Any:
        """Add a thing, directly or as a decorator.

        Args:
            value: The thing; if it is left out, a decorator is returned.
            aliases: Other names for it.
            options: Ignored.

        Returns:
            The thing, or the decorator.
        """

        def add(value: T) -> T:
            self._items.update(dict.fromkeys((name, *aliases), value))
            return value

        return add if value is None else add(value)

    def get(self, name: str, **options: Any) -> T:
        """Look a thing up.

        Args:
            options: Ignored.

        Raises:
            KeyError: When this bundle does not have it.
        """
        if name not in self._items:
            raise KeyError(
                f"this bundle has no {self.kind} {name!r}, only {', '.join(self._items)}; "
                "`pip install transformer-zoo` brings all of them"
            )
        return self._items[name]

    def origin(self, name: str) -> Origin:
        """Describe where a thing comes from.

        Returns:
            The same for all: what a bundle has, it brings itself.
        """
        return Origin()

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


@dataclass(frozen=True)
class Quirk:
    """A defect of an original implementation.

    Args:
        description: Its effect.
        overrides: Settings that it changes.
    """

    description: str
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """A variant.

    Args:
        builder: Builds it from a configuration.
        facts: Further facts of its author.
    """

    name: str
    builder: Callable[[Any], Any]
    facts: dict[str, Any]


VARIANTS: Registry[Variant] = Registry("variant")
TASKS = (
    "feature-extraction",
    "masked-lm",
    "sequence-classification",
    "token-classification",
    "causal-lm",
    "seq2seq-lm",
)


def register(name: str, **facts: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a builder as a variant."""

    def add(builder: Callable[[Any], Any]) -> Callable[[Any], Any]:
        VARIANTS.register(name, Variant(name, builder, facts))
        return builder

    return add
