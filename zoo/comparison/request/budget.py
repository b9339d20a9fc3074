"""How long every run is: so many steps, tokens, operations or seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from zoo.base.errors import ConfigError, InvalidChoiceError

KINDS = ("steps", "tokens", "flops", "seconds")
LENGTHS = ("max_steps", "num_train_epochs")
"""Training arguments that set the length of a run."""


@dataclass(frozen=True)
class Budget:
    """How long every run is: so much of one of `KINDS`."""

    kind: str
    amount: float

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:.10g}"


def read_budget(given: str | Mapping[str, float] | None) -> Budget | None:
    """Read a budget, "tokens=2e6" or {"tokens": 2e6}; None is the recipe's."""
    if given is None:
        return None
    text = given if isinstance(given, str) else ",".join(f"{kind}={amount}" for kind, amount in given.items())
    kind, _, value = (part.strip() for part in text.partition("="))
    if kind not in KINDS:
        raise InvalidChoiceError(kind, KINDS, kind="budget")
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0):
        raise ConfigError(f"the budget {text!r} was given; valid: {kind}=NUMBER, above 0, e.g. {kind}=1e6")
    return Budget(kind, amount)
