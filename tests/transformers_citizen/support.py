"""Which models the tests run on, and what several of them need."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from every_variant import enough, kinds_of
from torch import Tensor
from transformers.utils.logging import get_logger

import zoo
from zoo.registry import VARIANTS
from zoo.testing import Subject, subject_of

torch.set_num_threads(1)

ONE_OF_EACH = (("pre-norm", "causal-lm"), ("bert-style", "masked-lm"), ("marian-style", "seq2seq-lm"))
"""One model a family, for what takes long."""

ASSORTED = (
    *ONE_OF_EACH,
    ("post-norm", "seq2seq-lm"),
    ("gpt2-style", "causal-lm"),
    ("llama-style", "causal-lm"),
    ("gemma2-style", "causal-lm"),
    ("alibi-decoder", "causal-lm"),
    ("gptj-style", "causal-lm"),
    ("t5-style", "seq2seq-lm"),
    ("vanilla", "seq2seq-lm"),
    ("d2l-style", "seq2seq-lm"),
    ("universal", "seq2seq-lm"),
    ("universal", "causal-lm"),
    ("universal", "masked-lm"),
)
"""Models that differ in every part."""

LANGUAGE_MODELS = ("causal-lm", "masked-lm", "seq2seq-lm")

EVERY = (
    *ASSORTED,
    *(
        (name, next(str(task) for task in VARIANTS.get(name).tasks if task in LANGUAGE_MODELS))
        for name in zoo.list_variants()
        if name not in {assorted for assorted, _ in ASSORTED}
    ),
)
"""The same, and every other variant as the first kind of language model that it can be."""

SHARING = ("vanilla+cross-attention-reuses-self+feed-forward-reuses-cross-norm", "seq2seq-lm")
"""Modules that serve in two places of a layer."""

GENERATIVE = tuple(pair for pair in ASSORTED if pair[1] != "masked-lm")

EVERY_GENERATIVE = tuple((name, task) for task in ("causal-lm", "seq2seq-lm") for name in zoo.list_variants(task=task))


def thoroughness(pair: tuple[str, str], pairs: tuple[tuple[str, str], ...]) -> tuple[pytest.MarkDecorator, ...]:
    """Marks all but one model a family, or but the first of others: these are enough between two edits."""
    few = [one for one in pairs if one in ONE_OF_EACH] or pairs[:1]
    return () if pair in few else (pytest.mark.thorough,)


def over(pairs: tuple[tuple[str, str], ...]) -> pytest.MarkDecorator:
    """Run a test on the tiny model of every pair of variant and task."""
    params = [pytest.param(pair, id="-".join(pair), marks=thoroughness(pair, pairs)) for pair in pairs]
    return pytest.mark.parametrize("pair", params)


def enough_over(pairs: tuple[tuple[str, str], ...]) -> pytest.MarkDecorator:
    """The same: few of them that have every part each time, the rest, which puts the same parts together, at night."""
    chosen = tuple(sorted(enough(pairs, kinds_of), key=pairs.index))
    params = [
        pytest.param(
            pair, id="-".join(pair), marks=thoroughness(pair, chosen) if pair in chosen else pytest.mark.nightly
        )
        for pair in pairs
    ]
    return pytest.mark.parametrize("pair", params)


def quick_over(quick: tuple[tuple[str, str], ...], pairs: tuple[tuple[str, str], ...]) -> pytest.MarkDecorator:
    """The same where a test takes long: only some pairs are run every time."""
    marks = {True: (), False: (pytest.mark.slow, pytest.mark.nightly)}
    return pytest.mark.parametrize(
        "pair", [pytest.param(pair, id="-".join(pair), marks=marks[pair in quick]) for pair in pairs]
    )


def tiny(pair: tuple[str, str]) -> Subject:
    """The tiny model of one pair, shared between tests."""
    return subject_of(*pair)


def single(pair: tuple[str, str], **settings: Any) -> Any:
    """The tiny model of one pair in float32, not shared."""
    model = tiny(pair).rebuilt(**settings)
    return model.float()


def prompt(subject: Subject, length: int = 5) -> dict[str, Tensor]:
    """What `generate` begins with."""
    return {"input_ids": subject.inputs(batch_size=2)["input_ids"][:, :length]}


@contextmanager
def warnings_of(module: str) -> Iterator[list[str]]:
    """The warnings that one module logs through transformers, which shows each of them once a process."""
    logger = get_logger(module)
    type(logger).warning_once.cache_clear()
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = Collector(level=logging.WARNING)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
