"""A suite with its options, written as `blimp:limit=100`, as the score of a model."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError, UnknownOverrideError
from zoo.data.tasks.scores import Score
from zoo.registry import split_options

from .results import SuiteResult, evaluate_suite
from .scoring import methods_for
from .suite import SUITES, suite_folder


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
        for option in options:
            if option not in (known := ("limit", "method", "data")):
                raise UnknownOverrideError(option, known, kind="option", owner=f"suite {name!r}")
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
        found = hashlib.sha256()
        for item in items:
            found.update(f"{item}\n".encode())
        return found.hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.digest}

    def evaluate(self, model: str | Path | PreTrainedModel, **options: Any) -> SuiteResult:
        return evaluate_suite(model, self.name, data=self.data, method=self.method, limit=self.limit, **options)

    def score(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Score:
        found = self.evaluate(model, tokenizer=tokenizer)
        limit = "" if self.limit is None else f"|limit:{self.limit}"
        signature = f"suite:{self.name}|{found.method}|items:{self.digest}{limit}"
        return Score(self.name, found.overall, signature, found.interval)
