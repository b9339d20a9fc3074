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
"""One model a family."""

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


Pairs = tuple[tuple[str, str], ...]


def over(pairs: Pairs, by_day: Pairs = ONE_OF_EACH, always: Pairs = EVERY) -> pytest.MarkDecorator:
    """Run a test on the tiny model of every pair of variant and task: on few each time, on the others at night.

    Args:
        pairs: The pairs.
        by_day: Those each time. If none of the pairs is among them, the first one.
        always: Those of them that are enough between two edits.
    """
    few = [pair for pair in pairs if pair in by_day] or pairs[:1]
    params = []
    for pair in pairs:
        mark = pytest.mark.nightly if pair not in few else pytest.mark.thorough if pair not in always else ()
        params.append(pytest.param(pair, id="-".join(pair), marks=mark))
    return pytest.mark.parametrize("pair", params)


def enough_over(pairs: Pairs) -> pytest.MarkDecorator:
    """The same where every part counts: each time on few of them that have every part."""
    return over(pairs, tuple(enough(pairs, kinds_of)), always=(*ONE_OF_EACH, pairs[0]))


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
