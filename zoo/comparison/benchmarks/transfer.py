"""How a model does on tasks that it was not trained on: longer sequences, longer windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from zoo.base.errors import ZooError
from zoo.comparison import Run
from zoo.comparison.files import CHECKPOINT, read_json_or_none, write_json
from zoo.comparison.request.seeds import DATA_SEED
from zoo.data.tasks import DataSource, find_task
from zoo.training.evaluate import evaluate

from .definition import Benchmark

TESTS = "tests.json"
"""The scores of a run on other tasks, in its folder."""


def transfer_scores(
    benchmark: Benchmark, condition: str, run: Run, folder: Path, data: Path | None, tell: Callable[[str], None]
) -> dict[str, float]:
    """Score a model on the benchmark's tests, once."""
    file = folder / run.folder / TESTS
    kept = read_json_or_none(file)
    if not isinstance(kept, dict) or kept.get("digest") != run.hash or set(kept["scores"]) != set(benchmark.tests):
        model = folder / run.folder / CHECKPOINT
        scores = {test: score(benchmark, condition, test, model, data, tell) for test in benchmark.tests}
        kept = {"digest": run.hash, "scores": scores}
        if benchmark.tests:
            write_json(file, kept)
    return {f"{column}@{test}": value for test, found in kept["scores"].items() for column, value in found.items()}


def score(
    benchmark: Benchmark, condition: str, test: str, model: Path, data: Path | None, tell: Callable[[str], None]
) -> Mapping[str, float]:
    """Score a model on one test; arguments as for [`transfer_scores`][]. Nothing where it cannot read the examples."""
    said = benchmark.arguments(condition)
    source = DataSource.of(data or said.get("data"), said.get("heldout"), said.get("columns"), DATA_SEED)
    name = benchmark.tests[test].format(task=benchmark.task(condition).name)
    examples = find_task(name).load_from(source).heldout
    try:
        evaluation = evaluate(model, name, data=examples, n_bootstrap=1)
    except ZooError as error:
        tell(f"{model.parent}, {test}: {error}")
        return {}
    scores = {key: found.value for key, found in evaluation.scores.items() if key == benchmark.score}
    return {"heldout_loss": evaluation.loss, **scores}
