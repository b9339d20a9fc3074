"""Choice of informative examples to show."""

from __future__ import annotations

from ..results.comparison import Comparison
from ..run.record import Run

EXAMPLES = 4
LONGEST_TEXT = 160


def shown_runs(comparison: Comparison) -> list[Run]:
    """Choose of every variant the first run that has outputs."""
    chosen = (next((run for run in comparison.runs_of(name) if run.outputs), None) for name in comparison.names)
    return [run for run in chosen if run is not None]


def chosen_examples(comparison: Comparison, finished: list[Run], count: int = EXAMPLES) -> list[int]:
    """Choose the places of some examples, spread over the data, half of them such that the variants differ."""
    if not finished:
        return []
    everything = range(len(comparison.references))
    differing = [i for i in everything if len({run.outputs[i] for run in finished}) > 1]
    chosen = spread(differing, (count + 1) // 2)
    return sorted({*chosen, *spread([i for i in everything if i not in chosen], count - len(chosen))})


def shortened(text: str) -> str:
    """Cut a text that would fill the screen, as outputs of untrained models do."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def spread(places: list[int], count: int) -> list[int]:
    """Choose so many at equal distances."""
    count = min(count, len(places))
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]
