"""A recorded comparison, carried out again elsewhere: its command, its data, and which numbers came out equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.base.errors import ConfigError

from .request.options import options
from .request.request import Request
from .results.comparison import Comparison
from .run.record import Run

REPEATED = "repeated.json"  # Which numbers came out equal, in the folder of the repeated comparison

COUNTED = (
    "num_parameters",
    "train_examples",
    "heldout_examples",
    "steps",
    "train_tokens",
    "train_loss",
    "heldout_loss",
)
"""Numbers of a run's report that depend on no clock."""


@dataclass(frozen=True)
class RepeatedNumber:
    """A number of a run, as it was recorded and as it came out again."""

    run: str
    number: str  # Its name in results.json
    recorded: Any  # Its value in the record, None where that has none
    repeated: Any  # Its value now, None where the run failed

    @property
    def equal(self) -> bool:
        """Whether both are the same, to the last bit."""
        return bool(self.recorded == self.repeated)


def require_same_data(recorded: Comparison, arguments: Mapping[str, Any]) -> None:
    """Refuse other examples than those of a record, or a record without numbers, before anything is trained."""
    if not any(map(numbers_of, recorded.runs)):
        raise ConfigError(f"no run of {recorded.folder} finished: it has no number that could be compared")
    if not recorded.data:
        raise ConfigError(f"{recorded.folder} has no hashes of its data: an older version of the zoo recorded it")
    request = Request(**{name: arguments[name] for name in options() if name in arguments})
    found = request.common(request.chosen.data_task().load_from(request.source))["data"]
    for part, was, now in zip(("training", "held-out"), recorded.data, found, strict=False):
        if was != now:
            raise ConfigError(
                f"the {part} examples of {request.source.data or 'the data that ship'} have the hash {now}, those of "
                f"the recorded comparison {was}; give its data with --data"
            )


def compare_numbers(recorded: Comparison, repeated: Comparison) -> list[RepeatedNumber]:
    again = {run.label: numbers_of(run) for run in repeated.runs}
    return [
        RepeatedNumber(run.label, name, value, again.get(run.label, {}).get(name))
        for run in recorded.runs
        for name, value in numbers_of(run).items()
    ]


def numbers_of(run: Run) -> dict[str, Any]:
    """The numbers of a run that depend on no clock, by name."""
    report = run.report or {}
    scores = {f"scores.{name}": score.get("value") for name, score in report.get("scores", {}).items()}
    return {name: report[name] for name in COUNTED if name in report} | scores


def sentences(numbers: Sequence[RepeatedNumber]) -> Iterator[str]:
    for one in numbers:
        found = f"{one.repeated} equal" if one.equal else f"recorded {one.recorded!r}, now {one.repeated!r}"
        yield f"{one.run}: {one.number} {found}"
    yield f"{sum(one.equal for one in numbers)} of {len(numbers)} numbers are equal"
