"""Accuracy on minimal pairs: how often the acceptable sentence gets the higher score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

from transformers import PreTrainedModel

from zoo.base.errors import DataError
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .sentence_scores import method_of, sentence_scores
from .suite import SUITES, MinimalPair, suite_folder


@dataclass(frozen=True)
class PairScore:
    """A pair with the scores of its sentences, in nats."""

    pair: MinimalPair
    good: float
    bad: float

    @property
    def is_right(self) -> bool:
        """Whether the acceptable sentence has the higher score; equal scores are not right."""
        return self.good > self.bad


@dataclass(frozen=True)
class Accuracy:
    """A share of pairs, in percent, with its 95 % interval (Wilson 1927, over pairs)."""

    right: int
    pairs: int
    ties: int

    @property
    def value(self) -> float:
        """The share that is right, in percent."""
        return 100 * self.right / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, in percent."""
        z = NormalDist().inv_cdf(0.975)
        share, spread = self.right / self.pairs, z * z / self.pairs
        middle = (share + spread / 2) / (1 + spread)
        half = z * math.sqrt(share * (1 - share) / self.pairs + spread / (4 * self.pairs)) / (1 + spread)
        return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)

    def to_dict(self) -> dict[str, Any]:
        """Value, interval and counts as plain data."""
        return {"value": self.value, "interval": list(self.interval), "pairs": self.pairs, "ties": self.ties}


@dataclass(frozen=True)
class SuiteResult:
    """A model's accuracy on a suite.

    Attributes:
        suite: The suite's name.
        method: How sentences were scored.
        scores: Every pair with its scores, in the suite's order.
    """

    suite: str
    method: str
    scores: tuple[PairScore, ...] = field(repr=False)

    def by(self, attribute: str) -> dict[str, Accuracy]:
        """Accuracy by "paradigm", "phenomenon" or "field", sorted by name."""
        groups: dict[str, list[PairScore]] = {}
        for score in self.scores:
            groups.setdefault(getattr(score.pair, attribute), []).append(score)
        return {name: accuracy(groups[name]) for name in sorted(groups)}

    @property
    def overall(self) -> float:
        """The mean of the paradigms' accuracies, in percent, as BLiMP is reported."""
        return fmean(found.value for found in self.by("paradigm").values())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `overall` over pairs, with the paradigms fixed.

        Normal, with two right and two wrong pairs added per share (Agresti and Coull 1998), as few may all be right.
        """
        found = self.by("paradigm").values()
        shares = [(one.right + 2) / (one.pairs + 4) for one in found]
        variances = [1e4 * share * (1 - share) / one.pairs for share, one in zip(shares, found, strict=True)]
        variance = sum(variances) / len(found) ** 2
        half = NormalDist().inv_cdf(0.975) * math.sqrt(variance)
        return max(0.0, self.overall - half), min(100.0, self.overall + half)

    def to_dict(self) -> dict[str, Any]:
        """All accuracies as plain data."""
        groups = {name: self.by(name) for name in ("field", "phenomenon", "paradigm")}
        written: Mapping[str, Any] = {
            name: {key: one.to_dict() for key, one in group.items()} for name, group in groups.items()
        }
        overall = {"value": self.overall, "interval": list(self.interval), "pairs": len(self.scores)}
        return {"suite": self.suite, "method": self.method, "overall": overall, **written}


def accuracy(scores: Iterable[PairScore]) -> Accuracy:
    """Count what is right."""
    found = list(scores)
    return Accuracy(sum(one.is_right for one in found), len(found), sum(one.good == one.bad for one in found))


def evaluate_suite(
    model: str | Path | PreTrainedModel,
    suite: str = "blimp",
    *,
    data: str | Path | None = None,
    tokenizer: TokenizerSource | None = None,
    method: str | None = None,
    limit: int | None = None,
    batch_tokens: int = 8192,
    advance: Callable[[int], object] = lambda done: None,
) -> SuiteResult:
    """Score a language model on a suite of minimal pairs.

    Args:
        model: A checkpoint's folder, the name of weights, a repository on the Hub, or a model.
        suite: A name in [`zoo.training.suites.SUITES`][].
        data: The folder with the suite's files; by default the one of its name in the folder `ZOO_DATA`.
        tokenizer: The tokenizer or the folder it is in, by default the one of the checkpoint.
        method: How sentences are scored: "log-probability" for causal models and encoder-decoders,
            "pseudo-log-likelihood" or "pseudo-log-likelihood-within-word" for masked ones.
        limit: Number of pairs per paradigm; None for all.
        batch_tokens: Number of tokens per batch.
        advance: Called with the number of rows that have been computed.

    Raises:
        UnknownNameError: When there is no such suite.
        DataError: When its files are not there, or broken.
        ConfigError: When the model gives no probabilities of sentences, or not by this method.
    """
    pairs = list(SUITES.get(suite).pairs(suite_folder(suite, data), limit))
    if not pairs:
        raise DataError(f"the files of the suite {suite!r} hold no pairs")
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer)
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    used = method_of(loaded, method)
    found = sentence_scores(loaded, tokenizers.target, texts, method=used, batch_tokens=batch_tokens, advance=advance)
    score = dict(zip(texts, found, strict=True))
    return SuiteResult(suite, used, tuple(PairScore(pair, score[pair.good], score[pair.bad]) for pair in pairs))
