"""Time of a comparison's runs, by phase."""

from __future__ import annotations

from rich.text import Text

from ..results.comparison import Comparison
from ..run.record import Run
from ..run.timings import PHASES
from .layout import WideTable


def timings_table(comparison: Comparison) -> WideTable | Text:
    """Put the seconds of each phase into a table: a row a variant, the mean over its runs that were timed."""
    timed = {name: [run for run in comparison.runs if run.name == name and run.timings] for name in comparison.names}
    names = [name for name, runs in timed.items() if runs]
    if not names:
        return Text("no run of this comparison was timed")
    columns = [
        [Text(f"{phase.capitalize()}\ns"), *(Text(f"{mean(timed[name], phase):.2f}") for name in names)]
        for phase in PHASES
    ]
    shares = [mean(timed[name], "train") / sum(mean(timed[name], phase) for phase in PHASES) for name in names]
    columns.append([Text("Training\n%"), *(Text(f"{100 * share:.0f}") for share in shares)])
    return WideTable(names, columns)


def mean(runs: list[Run], phase: str) -> float:
    """The mean seconds of a phase; 0 where it did not happen."""
    return sum(run.timings.get(phase, 0.0) for run in runs) / len(runs)
