"""A model's accuracy on a suite, with its options: how often the right option gets the highest score."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError, DataError, UnknownOverrideError
from zoo.data.tasks.metrics import rank_correlation
from zoo.data.tasks.scores import Score
from zoo.registry import split_options
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .scoring import VALID, method_of, methods_for, option_scores
from .suite import SUITES, Item, suite_folder

Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class ItemScore:
    """An item with the scores of its options, in nats."""

    item: Item
    values: tuple[float, ...]

    @property
    def is_right(self) -> bool:
        """Whether the first option has the highest score; equal scores are not right."""
        return self.values[0] > max(self.values[1:])

    @property
    def is_tied(self) -> bool:
        """Whether another option has the score of the first one, and none a higher one."""
        return self.values[0] == max(self.values[1:])

    @property
    def preference(self) -> float:
        """The first option's share of the options' probability."""
        return 1 / sum(math.exp(min(value - self.values[0], 700)) for value in self.values)


@dataclass(frozen=True)
class Accuracy:
    """A share of items, in percent, with its 95 % interval (Wilson 1927, over items)."""

    right: int
    items: int
    ties: int

    @property
    def value(self) -> float:
        return 100 * self.right / self.items

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, in percent."""
        share, spread = self.right / self.items, Z * Z / self.items
        middle = (share + spread / 2) / (1 + spread)
        half = Z * math.sqrt(share * (1 - share) / self.items + spread / (4 * self.items)) / (1 + spread)
        return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "interval": list(self.interval), "items": self.items, "ties": self.ties}


@dataclass(frozen=True)
class SuiteResult:
    """A model's accuracy on a suite, or the correlation of its preferences with people's."""

    suite: str  # The suite's name
    method: str  # How texts were scored
    scores: tuple[ItemScore, ...] = field(repr=False)  # Every item with its scores, in the suite's order
    measure: str = "accuracy"  # As in `Suite`
    average: str = "paradigm"  # As in `Suite`

    def by(self, attribute: str) -> dict[str, Accuracy]:
        """Accuracy by "paradigm", "phenomenon" or "field", sorted by name."""
        groups: dict[str, list[ItemScore]] = {}
        for score in self.scores:
            groups.setdefault(getattr(score.item, attribute), []).append(score)
        return {
            name: Accuracy(sum(one.is_right for one in found), len(found), sum(one.is_tied for one in found))
            for name, found in sorted(groups.items())
        }

    @property
    def overall(self) -> float:
        """The mean of the paradigms' accuracies in percent, by `average`; or the correlation."""
        if self.measure == "correlation":
            return self.correlation
        weights = self.weights
        return math.fsum(weights[name] * found.value for name, found in self.by("paradigm").items())

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the paradigms in `overall`: equal ones, or equal ones of and within the groups of `average`."""
        groups = {score.item.paradigm: getattr(score.item, self.average) for score in self.scores}
        sizes = Counter(groups.values())
        return {name: 1 / (sizes[group] * len(sizes)) for name, group in groups.items()}

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of the model's preferences with people's."""
        model = [score.preference for score in self.scores]
        people = [score.item.preference for score in self.scores if score.item.preference is not None]
        found = rank_correlation(model, people) if len(people) == len(model) else None
        if found is None:
            raise DataError(f"suite {self.suite!r}: preferences of the model or of people are all alike, or missing")
        return found

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `overall` over items, with the paradigms fixed.

        Normal, with two right and two wrong items added per share (Agresti and Coull 1998), as few may all be right; of
        a correlation, by Fisher's transformation (Bonett and Wright 2000).
        """
        if self.measure == "correlation":
            middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, self.correlation)))
            half = Z * math.sqrt((1 + self.correlation**2 / 2) / max(len(self.scores) - 3, 1))
            return math.tanh(middle - half), math.tanh(middle + half)
        variance, weights = 0.0, self.weights
        for name, one in self.by("paradigm").items():
            share = (one.right + 2) / (one.items + 4)
            variance += weights[name] ** 2 * 1e4 * share * (1 - share) / one.items
        half = Z * math.sqrt(variance)
        return max(0.0, self.overall - half), min(100.0, self.overall + half)

    def to_dict(self) -> dict[str, Any]:
        overall = {"value": self.overall, "interval": list(self.interval), "items": len(self.scores)}
        groups = {
            name: {key: one.to_dict() for key, one in self.by(name).items()}
            for name in ("field", "phenomenon", "paradigm")
        }
        named = {"suite": self.suite, "measure": self.measure, "method": self.method, "overall": overall}
        return named if self.measure == "correlation" else {**named, **groups}


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
    """Score a language model on a suite.

    Args:
        model: A checkpoint's folder, the name of weights, a repository on the Hub, or a model.
        suite: A name in [`zoo.training.suites.SUITES`][].
        data: The folder with the suite's files, or one that holds it; by default the one of its name in the folder
            `ZOO_DATA`.
        tokenizer: The tokenizer or the folder it is in, by default the one of the checkpoint.
        method: How texts are scored, one of `METHODS`; by default the first that the model can be scored by.
        limit: Number of items per file; None for all.
        batch_tokens: Number of tokens per batch.
        advance: Called with the number of rows that have been computed.
    """
    chosen = SUITES.get(suite)
    items = list(chosen.items(suite_folder(suite, data), limit))
    if not items:
        raise DataError(f"the files of the suite {suite!r} are empty")
    task = None if method is None else next((one for one, methods in VALID.items() if method in methods), None)
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, task=task)
    options = list(dict.fromkeys(option for item in items for option in item.options))
    used = method_of(loaded, method)
    found = option_scores(loaded, tokenizers.target, options, method=used, batch_tokens=batch_tokens, advance=advance)
    value = dict(zip(options, found, strict=True))
    scores = (ItemScore(item, tuple(value[option] for option in item.options)) for item in items)
    return SuiteResult(suite, used, tuple(scores), chosen.measure, chosen.average)


@dataclass(frozen=True)
class SuiteRun:
    """A suite and how it is run."""

    name: str  # A name in `zoo.training.suites.SUITES`
    limit: int | None = None  # Number of items per file; None for all
    method: str | None = None  # As for `zoo.training.suites.evaluate_suite`
    data: str | None = None  # The folder with the suite's files; None for the default of its name

    @classmethod
    def parse(cls, text: str) -> SuiteRun:
        """Read a name with options, such as `blimp:limit=100`."""
        name, options = split_options(text, "suite")
        SUITES.get(name)
        UnknownOverrideError.check(*options, valid=("limit", "method", "data"), kind="option", owner=f"suite {name!r}")
        limit = options.get("limit")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigError(f"limit={limit!r} was given; valid: a number of items per file, e.g. {name}:limit=100")
        return cls(name, **options)

    def check(self, task: str) -> None:
        """Refuse a suite that models for a task cannot be scored on, or without its files."""
        methods_for(task, self.method)
        _ = self.digest

    @cached_property
    def digest(self) -> str:
        items = SUITES.get(self.name).items(suite_folder(self.name, self.data), self.limit)
        return hashlib.sha256("".join(f"{item}\n" for item in items).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.digest}

    def evaluate(self, model: str | Path | PreTrainedModel, **options: Any) -> SuiteResult:
        return evaluate_suite(model, self.name, data=self.data, method=self.method, limit=self.limit, **options)

    def score(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Score:
        found = self.evaluate(model, tokenizer=tokenizer)
        limit = "" if self.limit is None else f"|limit:{self.limit}"
        signature = f"suite:{self.name}|{found.method}|items:{self.digest}{limit}"
        return Score(self.name, found.overall, signature, found.interval)
