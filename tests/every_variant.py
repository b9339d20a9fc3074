"""All variants, for tests that need one model of each, and a choice of them for every day."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, TypeVar

import pytest

import zoo
from zoo.building.settings import setting_cards
from zoo.registry import VARIANTS

T = TypeVar("T")

ONE_TASK = {name: task for task in ("seq2seq-lm", "masked-lm", "causal-lm") for name in zoo.list_variants(task=task)}
"""Every variant, with one of its tasks."""

SETTINGS = [card.name for card in setting_cards() if card.name != "variant"]


@cache
def kinds_of(pair: tuple[str, str]) -> frozenset[tuple[str, Any]]:
    """What a variant with a task is put together from: its own file, parts, switches, and numbers set or not."""
    config = zoo.config(*pair)
    values = {
        "stack": config.stack,
        "file": VARIANTS.get(config.variant).origin.module,
        **{name: getattr(config, name, None) for name in SETTINGS},
    }
    return frozenset({("attention and position", f"{config.attention} {config.position}")}) | {
        (name, kind)
        for name, value in values.items()
        for kind in (value if isinstance(value, list | tuple) else [value])
        if isinstance(kind, bool | str) or kind is None
    }


def enough(cases: Iterable[T], kinds: Callable[[T], AbstractSet[Any]]) -> set[T]:
    """Choose few cases that have between them all kinds of things that any has; those left over only mix these anew.

    Each is the one that adds most to those before it.

    Args:
        cases: All cases.
        kinds: What there is in one.
    """
    chosen = set()
    missing = {case: kinds(case) for case in cases}
    while any(missing.values()):
        best = max(missing, key=lambda case: len(missing[case]))
        chosen.add(best)
        added = missing[best]
        missing = {case: found - added for case, found in missing.items()}
    return chosen


EVERY_PART = {name for name, _ in enough(ONE_TASK.items(), kinds_of)}
"""As few variants as have every part and every file of variants between them; the others only mix these anew."""

EACH: list[Any] = [pytest.param(name, marks=() if name in EVERY_PART else pytest.mark.nightly) for name in ONE_TASK]
"""To parametrize by: those variants each time, the others at night."""
