"""All variants, for tests that need one model of each, and a choice of them for every day."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, TypeVar

import pytest

import zoo
from zoo.building.builder import stack_of
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
    """Choose few cases with all `kinds` of things between them, each the one that adds most to those before."""
    chosen = set()
    missing = {case: kinds(case) for case in cases}
    while any(missing.values()):
        best = max(missing, key=lambda case: len(missing[case]))
        chosen.add(best)
        added = missing[best]
        missing = {case: found - added for case, found in missing.items()}
    return chosen


def in_turn(ones: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """All pairs, to parametrize by: each time some that have every one and every other, the rest at night."""
    ones, others = list(ones), list(others)
    step = min(len(ones), len(others))
    return [
        pytest.param(one, other, marks=[pytest.mark.nightly] * ((number - place) % step > 0))
        for number, one in enumerate(ones)
        for place, other in enumerate(others)
    ]


EVERY_PART = {name for name, _ in enough(ONE_TASK.items(), kinds_of)}
"""As few variants as have every part and every file of variants between them; the others only combine these."""

EACH: list[Any] = [pytest.param(name, marks=() if name in EVERY_PART else pytest.mark.nightly) for name in ONE_TASK]
"""To parametrize by: those variants each time, the others at night."""

READ_BY_HEADS = {
    *("stack", "norm_placement", "final_norm", "embedding_norm", "num_nextn_predict_layers"),
    *("tie_word_embeddings", "share_encoder_decoder_embeddings", "lm_head_bias", "lm_head_transform"),
    *("logit_scale", "final_logit_softcapping", "classifier_pooling", "classifier_pooler_act"),
    *("classifier_positions", "classifier_bias"),
}
"""Settings that heads read, and those of what comes to them."""


def kinds_of_head(pair: tuple[str, str]) -> set[tuple[str, str, str]]:
    """Tasks of heads, with each of the settings that a head reads."""
    task = pair[1]
    return {(task, name, str(kind)) for name, kind in kinds_of(pair) if name in READ_BY_HEADS}


def first_heads(name: str) -> set[tuple[str, str]]:
    """A variant's first task of every stack."""
    variant = VARIANTS.get(name)
    firsts = {stack_of(variant, task): (name, str(task)) for task in reversed(variant.tasks)}
    return {*firsts.values()}


EVERY_HEAD = enough([(name, str(task)) for name in ONE_TASK for task in VARIANTS.get(name).tasks], kinds_of_head)
"""As few models as have every head with every stack, and with every value of a setting that it reads."""

EVERY_BODY: set[tuple[str, str]] = set().union(*map(first_heads, EVERY_PART))  # Bodies, with one head a stack

EVERY_TIME = EVERY_HEAD | EVERY_BODY  # Cases of every check, except for checks of heads or bodies alone

OF_HEADS = {"body_and_head_load_from_each_other", "loss_is_cross_entropy", "skipping_logits_changes_no_gradient",
            "logits_to_keep_selects_positions", "vocabulary_can_grow"}  # fmt: skip
"""Checks of `zoo.testing` that are about heads alone."""
