"""How verdicts are reached: how much counts as nothing, and whether seeds are added until a verdict is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..request.seeds import FEWEST_SEEDS
from .boundaries import increment, levels, spent
from .statistics import DECIDED, ERROR, NOISE, UNDECIDED, PairedDifference, Pairs, verdict


@dataclass(frozen=True)
class Design:
    """How verdicts are reached, settled before there are any results."""

    # The largest difference of the score that decides which counts as none; None for no verdict "the same"
    margin: float | None = None
    # The most seeds of a variant, where undecided ones get another seed until they are decided; None where all have the
    # same number
    limit: int | None = None

    @property
    def otherwise(self) -> str:
        """The verdict if nothing is decided."""
        return NOISE if self.limit is None else UNDECIDED

    def spent(self, seeds: int) -> float:
        """The share of the error that is spent after so many seeds."""
        return 1.0 if self.limit is None else spent(seeds, self.limit)

    @classmethod
    def of(cls, written: Mapping[str, float | int | None] | None) -> Design:
        """Read what `dataclasses.asdict` wrote; None is the design without margin and limit."""
        if written is None:
            return FIXED
        limit = written["limit"]
        return cls(written["margin"], None if limit is None else int(limit))


FIXED = Design()
"""Equal numbers of seeds, and no margin."""


def decide_in_turn(
    histories: Mapping[str, Sequence[Pairs]], limit: int, margin: float | None
) -> dict[str, PairedDifference]:
    """Test variants against one baseline after three seeds, after one more, and so on, until each is decided.

    Without a margin, the share of the error of a variant that is decided goes to the others, as in Holm's correction
    (Maurer and Bretz 2013); with one, see [`compare_all`][zoo.comparison.results.statistics.compare_all].

    Args:
        histories: By variant, its pairs with the first three seeds, with the first four, and so on.

    Returns:
        Differences as they were when they were decided, or at the last look; none of a variant without a look.
    """
    undecided = [name for name, history in histories.items() if history]
    tests = len(undecided)
    found: dict[str, PairedDifference] = {}
    for look in range(min(limit - FEWEST_SEEDS + 1, max(map(len, histories.values()), default=0))):
        decided: list[str] | None = None
        while decided is None or (decided and margin is None):
            share = ERROR / max(1, tests if margin is not None else len(undecided))
            there = [
                name for name in undecided if histories[name][look : look + 1] and histories[name][look].differences
            ]
            found |= {name: at_look(histories[name][look], share, look, limit, margin) for name in there}
            decided = [name for name in there if verdict(found[name]) in DECIDED]
            undecided = [name for name in undecided if name not in decided]
    return found


def at_look(pairs: Pairs, share: float, look: int, limit: int, margin: float | None) -> PairedDifference:
    """Test a difference at one look; sign tests, which have steps, spend the error of this look alone."""
    found = PairedDifference.of(pairs)
    if not found.is_by_size:
        return found.against(increment(share, look + FEWEST_SEEDS, limit), margin)
    at = found.pairs - FEWEST_SEEDS
    return found.against(levels(share, limit, 2)[at], margin, levels(share, limit, 1)[at])
