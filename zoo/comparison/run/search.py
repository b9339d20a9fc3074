"""Trials and choice of a sweep for one variant.

All values are tried for a short while, and further ones where the best is at an edge. The three that are best or next
to the best are tried for half a run, and of one argument the lowest point of the parabola through these is chosen. All
trials together cost at most three runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from zoo.registry.names import is_number

from ..request.seeds import Values, at_the_edge, beyond
from .record import Run

WIDENINGS = 2  # Further values that are tried at most

FINALISTS = 3
FINAL_SHARE = 0.5  # Of a run, for which finalists are trained: all of them take one and a half
FIRST_COST = 1.5  # Runs that the first trials take at most, further values included


@dataclass(frozen=True)
class Trial:
    """A trial: its values, the share of a run for which it was trained, and what came of it."""

    values: Mapping[str, Any]
    share: float
    run: Run

    @property
    def loss(self) -> float:
        """Its loss, infinite where it failed."""
        loss = math.inf if self.run.report is None else float(self.run.report["heldout_loss"])
        return loss if math.isfinite(loss) else math.inf


@dataclass(frozen=True)
class Choice:
    """The choice of a sweep for a variant."""

    trials: Sequence[Trial]
    values: Mapping[str, Any] | None  # Chosen values; None if all trials failed
    best: Trial | None  # The trial that decided, or next to which the chosen value lies

    def tried(self, name: str) -> list[Any]:
        return [one.values[name] for one in self.trials]


Asked = tuple[Sequence[Mapping[str, Any]], float]  # Values to try, and for which share of a run


def search(
    tried: Values, is_valid: Callable[[Mapping[str, Any]], bool] = lambda values: True
) -> Generator[Asked, Sequence[Run], Choice]:
    """Search for the best values of one variant: yields what to try, takes what came of it, and returns the choice.

    Values beyond those that were asked for are tried where they are valid.
    """
    first = [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]
    share = min(FINAL_SHARE, FIRST_COST / (len(first) + WIDENINGS))
    trials = yield from ask(first, share)
    for _ in range(WIDENINGS):
        further = further_values(trials)
        if further is None or not is_valid(further):
            break
        trials += yield from ask([further], share)
    if len(trials) == 1:
        return choose(trials, trials)
    finals = yield from ask([one.values for one in finalists(trials)], FINAL_SHARE)
    return choose([*trials, *finals], finals if any(one.loss < math.inf for one in finals) else trials)


def ask(values: Sequence[Mapping[str, Any]], share: float) -> Generator[Asked, Sequence[Run], list[Trial]]:
    runs = yield values, share
    return [Trial(one, share, run) for one, run in zip(values, runs, strict=True)]


def further_values(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Values with the first one beyond an edge at which the best trial lies; None where it lies at none."""
    if (best := lowest(trials)) is None:
        return None
    for name, value in best.values.items():
        numbers = [one.values[name] for one in trials if is_number(one.values[name])]
        if at_the_edge(value, numbers) and (further := beyond(value, numbers)) is not None:
            return {**best.values, name: further}
    return None


def finalists(trials: Sequence[Trial]) -> list[Trial]:
    """The best trial and, of one number, its neighbours; of others those with the lowest losses."""
    ordered = sorted(trials, key=lambda one: one.loss)
    name = number_of(trials)
    if name is not None:
        line = sorted(trials, key=lambda one: float(one.values[name]))
        start = max(0, min(line.index(ordered[0]) - 1, len(line) - FINALISTS))
        return line[start : start + FINALISTS]
    return ordered[:FINALISTS]


def choose(trials: Sequence[Trial], finals: Sequence[Trial]) -> Choice:
    """Choose the best of the last trials, or the lowest point of the parabola through three of one number."""
    best, name = lowest(finals), number_of(finals)
    if best is None:
        return Choice(trials, None, None)
    if name is not None and len(finals) == FINALISTS and best is finals[1]:
        rates, losses = [float(one.values[name]) for one in finals], [one.loss for one in finals]
        if min(rates) > 0 and math.inf not in losses:
            return Choice(trials, {name: lowest_point(rates, losses)}, best)
    return Choice(trials, best.values, best)


def lowest_point(rates: Sequence[float], losses: Sequence[float]) -> float:
    """The lowest point of the parabola through three losses over the logarithms of rates, the second the lowest."""
    left, middle, right = map(math.log, rates)
    falls, rises = (losses[0] - losses[1]) / (middle - left), (losses[2] - losses[1]) / (right - middle)
    if falls + rises <= 0:
        return rates[1]
    # Slopes of the two chords are those of the parabola in their middles, between which the slope grows evenly.
    share = falls / (falls + rises)
    point = (left + middle) / 2 + share * (right - left) / 2
    return float(f"{math.exp(point):.2g}")


def lowest(trials: Sequence[Trial]) -> Trial | None:
    """The first trial with the lowest loss; None where all failed."""
    return min((one for one in trials if one.loss < math.inf), key=lambda one: one.loss, default=None)


def number_of(trials: Sequence[Trial]) -> str | None:
    """The argument that is tried, if it is one with real numbers as values; else None."""
    names = list(trials[0].values)
    is_one = len(names) == 1 and all(is_number(one.values[names[0]]) for one in trials)
    return names[0] if is_one and any(isinstance(one.values[names[0]], float) for one in trials) else None


def chosen_values(choice: Choice) -> list[str]:
    """Describe what a sweep has chosen, and whether something better may lie beyond what was tried."""
    return [
        f"{name}={value}{', at the edge of what was tried' if at_the_edge(value, choice.tried(name)) else ''}"
        for name, value in (choice.values or {}).items()
    ]


def recorded(choices: Mapping[str, Choice], values: Values, seed: int) -> dict[str, Any]:
    """Write down what a sweep has found: what `Comparison.sweep` holds."""
    reports = [one.run.report for choice in choices.values() for one in choice.trials if one.run.report is not None]
    return {
        "values": values,
        "seed": seed,
        "selected": "lowest loss on training examples that the trials were not trained on",
        "examples": reports[0]["heldout_examples"] if reports else None,
        "runs": [
            {
                "name": name,
                "values": dict(one.values),
                "share": one.share,
                "loss": None if math.isinf(one.loss) else one.loss,
                "chosen": one is choice.best,
                "error": one.run.error,
                "folder": one.run.folder,
                "hash": one.run.hash,
            }
            for name, choice in choices.items()
            for one in choice.trials
        ],
    }
