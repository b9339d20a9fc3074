"""Which variants a benchmark compares: names, and patterns that grow with the zoo.

*                     every built-in variant that the task can be done with
pre-norm:position=*   one variant with every value that a setting takes
d2l-style+*           one variant with each of its quirks alone
!gpt2-style           not this one, nor what a pattern after the ! matches
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zoo.base.errors import UnsupportedTaskError, ZooError
from zoo.building.settings import describe_setting
from zoo.data.tasks import DataTask
from zoo.registry import VARIANTS, list_variants, parse_name
from zoo.registry.plugins import BUILT_IN_DISTRIBUTION


def expand(patterns: Iterable[str], task: DataTask) -> list[str]:
    patterns = list(patterns)
    unwanted = {name for pattern in patterns if pattern[:1] == "!" for name in names_of(pattern[1:], task)}
    wanted = (name for pattern in patterns if pattern[:1] != "!" for name in names_of(pattern, task))
    return [name for name in dict.fromkeys(wanted) if name not in unwanted]


def names_of(pattern: str, task: DataTask) -> Iterator[str]:
    if pattern.endswith("=*"):
        start, _, setting = pattern[:-2].replace(",", ":").rpartition(":")
        separator = pattern[len(start)]
        for value in describe_setting(setting).values:
            if value.islower() and can_be_built(name := f"{start}{separator}{setting}={value}", task):
                yield name
    elif pattern.endswith("+*"):
        base = pattern[:-2]
        yield from (f"{base}+{quirk}" for quirk in VARIANTS.get(parse_name(base).name).quirks)
    elif "*" in pattern:
        for name in list_variants(pattern, task=task.model_task):
            if task.suits(name) and VARIANTS.get(name).origin.distribution == BUILT_IN_DISTRIBUTION:
                yield name
    else:
        yield pattern


def can_be_built(name: str, task: DataTask) -> bool:
    from zoo.building.builder import config

    try:
        config(name, task.model_task)
    except UnsupportedTaskError:
        raise
    except ZooError:
        return False
    return True
