"""Speeds of variants that take turns within one process, so that they can be compared.

Speeds of runs one after the other differ by what else the machine does meanwhile. `python -m
zoo.comparison.benchmarks.timing JOB.json` is one repetition, and writes its result next to the job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from transformers import PreTrainedModel

from zoo.analysis.measuring import decode_speed, prefill_speed, training_speed
from zoo.base.errors import ConfigError
from zoo.base.files import read_json, read_mapping, write_json
from zoo.building.builder import config
from zoo.training.inputs import build_for

from ..files import RESULT
from ..pipeline import set_up
from ..request.request import Request
from ..run.launchers import fresh, reason
from ..run.worker import batch_of
from ..setup.jobs import JobMaker
from ..setup.shared_inputs import modules_of
from .definition import RELATIVE_SPEED, TIMED

TURN = 0.2  # Seconds of a turn, at least

FEWEST_ROUNDS = 3


def decoding_speed(model: PreTrainedModel, batch: Mapping[str, Any], seconds: float) -> float:
    """Measure how fast all examples of a batch are continued at once."""
    found = decode_speed(model, batch, seconds, sequences=len(batch["input_ids"]))
    if found is None:
        raise ConfigError(f"{model.config.variant} writes no tokens, or has no positions left for them")
    return found.tokens_per_second


SPEEDS: Mapping[str, Callable[[PreTrainedModel, Mapping[str, Any], float], float]] = dict(
    zip(TIMED, (training_speed, prefill_speed, decoding_speed), strict=True)
)


def timed(names: Sequence[str], what: str, arguments: Mapping[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Time variants in a process of their own; arguments as for [`take_turns`][]."""
    request = Request(list(names), **arguments)
    request.check()
    task = request.chosen.data_task().model_task
    modules = dict.fromkeys(module for name in names for module in modules_of(config(name, task)))
    job = {"names": names, "what": what, "arguments": arguments, "seed": seed, "folder": str(folder)}
    (folder / RESULT).unlink(missing_ok=True)
    status = fresh(__name__, write_json(folder / "job.json", {"modules": list(modules), **job}))
    found = read_mapping(folder / RESULT)
    if not found:
        raise ConfigError(f"{', '.join(names)} could not be timed: {reason(status)}")
    return found


def take_turns(
    names: Sequence[str], what: str, arguments: Mapping[str, Any], seed: int, folder: str
) -> dict[str, dict[str, Any]]:
    """Time variants, the baseline first, in rounds; in a round, they take turns in random order.

    `what` is one of `TIMED`; the budget is the seconds for each variant. A relative speed is the median over the rounds
    of the speed in percent of the baseline's in the same round.
    """
    random = Random(seed)
    asked = Request(list(names), **arguments, output_dir=folder)
    request, _, inputs = set_up(asked, progress=False, tell=lambda sentence: None)
    maker = JobMaker(inputs, request, request.match_to or names[0], progress=False, tell=lambda sentence: None)
    models = {
        name: build_for(inputs.task, maker.matched(name).name, inputs.tokenizers, inputs.recipe, seed=seed)
        for name in random.sample(names, len(names))
    }
    size, collator = inputs.arguments.per_device_train_batch_size, inputs.task.collator(inputs.tokenizers)
    batch = batch_of(inputs.encoded.train, size, models[names[0]], collator)
    seconds = len(names) * (request.spent.amount if request.spent is not None else 0.0)
    rounds: list[dict[str, float]] = []
    began = time.perf_counter()
    while len(rounds) <= FEWEST_ROUNDS or time.perf_counter() - began < seconds:
        order = random.sample(names, len(names))
        rounds.append({name: SPEEDS[what](models[name], batch, TURN) for name in order})
    rounds = rounds[1:]  # without that of warming up
    return {
        name: {
            "values": {
                RELATIVE_SPEED: 100 * median(one[name] / one[names[0]] for one in rounds),
                "tokens_per_second": median(one[name] for one in rounds),
                "parameters": models[name].num_parameters(),
            },
            "settings": maker.matched(name).settings,
        }
        for name in names
    }


def main(arguments: Sequence[str]) -> int:
    job = read_json(Path(arguments[0]))
    for module in job.pop("modules"):
        import_module(module)
    write_json(Path(job["folder"]) / RESULT, take_turns(**job))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
