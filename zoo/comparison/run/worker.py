"""Trains one variant in its own process: `python -m zoo.comparison.run.worker RUN/job.json`.

A separate process measures its own peak memory, and keeps its failures from the other runs.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import TrainerCallback
from transformers.utils import logging

from zoo.analysis.environment import circumstances
from zoo.analysis.measuring import FlopsPerToken, measure
from zoo.base.errors import ZooError
from zoo.base.files import write_json
from zoo.base.folders import locked
from zoo.building.starting import UnequalStartWarning
from zoo.data.tasks import DataError, DataTask, Splits, load_tokenizers
from zoo.data.tasks.libraries import loading_bars
from zoo.data.tasks.tables import DataWarning
from zoo.fast import fast_paths
from zoo.training import Recipe, TrainingResult, train
from zoo.training.after_steps import TimeBudget, TimedCheckpoints
from zoo.training.arguments import training_arguments
from zoo.training.guard import TrainingError
from zoo.training.preflight import known_columns
from zoo.training.request import SET_THE_STRATEGY
from zoo.training.suites import SuiteRun

from ..files import CHECKPOINT, LOCK, RESULT
from ..request.seeds import DATA_SEED
from ..setup.job import Job
from .record import finished
from .reload import MOST_EXAMPLES, Probe, since_start

SECONDS_BETWEEN_CHECKPOINTS = 60.0
BY_THE_CLOCK: dict[str, Any] = {"save_strategy": "steps", "save_steps": 10**9, "save_total_limit": 2}
"""Training arguments with which only a callback and the last step save a checkpoint."""


class Stopwatch:
    """Notes how long each phase of a run takes in this process, from its start."""

    def __init__(self) -> None:
        self.seconds = {"start": since_start()}
        self._since = time.perf_counter()

    def end(self, phase: str, **others: float) -> None:
        now = time.perf_counter()
        self.seconds |= {**others, phase: now - self._since - sum(others.values())}
        self._since = now


def work(job: Job) -> dict[str, Any]:
    """Train, save, and write down what the model answers; returns what the run's result.json holds."""
    watch = Stopwatch()
    for module in job.modules:
        importlib.import_module(module)
    recipe = Recipe(**job.recipe)
    task = recipe.data_task()
    tokenizers = replace(load_tokenizers(job.tokenizer), made_by=recipe.tokenizer)
    with loading_bars(shown=False):
        splits = task.prepare(task.load_from(job.source), tokenizers)
    if job.trial:
        splits = task.set_aside(splits.train, seed=DATA_SEED)
    resumed = next(Path(f"{Path(job.folder) / CHECKPOINT}-checkpoints").glob("checkpoint-*"), None) is not None
    watch.end("data")
    own: dict[str, Any] = {}
    callbacks: list[TrainerCallback] = []
    if not ("save_strategy" in recipe.arguments or any(map(recipe.arguments.get, SET_THE_STRATEGY))):
        own, callbacks = BY_THE_CLOCK, [TimedCheckpoints(SECONDS_BETWEEN_CHECKPOINTS)]
    if job.seconds is not None:
        callbacks.append(TimeBudget(job.seconds))
    result = train(
        job.variant,
        recipe.task,
        data=splits,
        recipe=recipe.changed(arguments=own),
        tokenizer=tokenizers,
        output_dir=Path(job.folder) / CHECKPOINT,
        force=True,
        resume=recipe.arguments.get("save_strategy") != "no",
        seed=job.seed,
        scored=not job.trial,
        callbacks=callbacks,
        progress=job.progress,
        tell=lambda overview: None,  # which is the same for every run, and shown once
    )
    watch.end("prepare", train=result.report.train_seconds, evaluate=result.report.evaluation_seconds)
    report = result.report.to_dict()
    curve = curve_of(result)
    for told_by_the_curve in ("history", "evaluations"):
        del report[told_by_the_curve]
    written = {"report": report, "curve": curve, "outputs": result.outputs}
    if not job.trial:
        if job.score is not None:
            suite = SuiteRun.parse(job.score)
            report["scores"][suite.name] = asdict(suite.score(result.model, result.tokenizers.target))
        ask(job, task, splits, result)
        written["costs"] = costs_of(job, task, recipe, splits, result)
        watch.end("measure")
    # The reported training time includes that of a killed process, which is only partly known.
    return {**written, "timings": {} if resumed else watch.seconds}


def ask(job: Job, task: DataTask, splits: Splits, result: TrainingResult) -> None:
    """Write down what a model answers on the CPU, where the process that loads it asks: a GPU rounds otherwise."""
    few = splits.heldout.select(range(min(MOST_EXAMPLES, len(splits.heldout))))
    sources = task.samples(few, MOST_EXAMPLES)
    probe = Probe(job.modules, tuple(sources), tuple(task.references(few)), task.model_task, job.fast_paths)
    trained_on = result.model.device
    answers = probe.ask(result.model.to("cpu"), result.tokenizers.source, result.tokenizers.target)
    result.model.to(trained_on)
    probe.write(Path(job.folder), answers)


def costs_of(job: Job, task: DataTask, recipe: Recipe, splits: Splits, result: TrainingResult) -> dict[str, Any]:
    """Measure what a trained model costs: the fields of [`zoo.analysis.measuring.Costs`][]."""
    args = training_arguments(recipe.arguments, output_dir=job.folder, seed=job.seed)
    encoded = some_encoded(task.fitted(splits), splits.train, result, args.per_device_train_batch_size)
    costs = measure(
        result.model,
        batch_of(encoded, args.per_device_train_batch_size, result.model, task.collator(result.tokenizers)),
        training_tokens_per_second=result.report.train_tokens_per_second,
        training_seconds=result.report.train_seconds,
        flops=None if job.flops is None else FlopsPerToken(*job.flops),
        dtype=torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None,
        devices=result.report.num_devices,
    )
    return costs.to_dict()


def batch_of(encoded: Any, size: int, model: nn.Module, collator: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    return collator(known_columns(model, encoded, range(min(size, len(encoded)))))


def some_encoded(task: DataTask, examples: Dataset, result: TrainingResult, number: int) -> Any:
    """Encode some examples at equal distances, or all of them where a few are too short to be encoded."""
    number = min(number, len(examples))
    few = examples.select([(2 * i + 1) * len(examples) // (2 * number) for i in range(number)])
    try:
        return task.encode(few, result.tokenizers, training=True, seed=result.report.seed)
    except DataError:
        return task.encode(examples, result.tokenizers, training=True, seed=result.report.seed)


def curve_of(result: TrainingResult) -> list[dict[str, float]]:
    """Join what was logged at each step into a row, with held-out losses (of examples set aside, if any)."""
    report, evaluated = result.report, "heldout_loss" if result.run.data.selection is None else "selection_loss"
    kept = ("step", "tokens", "seconds", "loss", "learning_rate", "grad_norm")
    points = [{key: entry[key] for key in kept if key in entry} for entry in report.history]
    points += [
        {**{key: entry[key] for key in kept[:3] if key in entry}, evaluated: entry["eval_loss"]}
        for entry in report.evaluations
    ]
    end = {"step": report.steps, "tokens": report.train_tokens, "seconds": report.train_seconds}
    points.append({**end, "heldout_loss": report.heldout_loss})
    return sorted(points, key=lambda point: point["step"])


def main(arguments: Sequence[str]) -> int:
    """Run a job's file; returns 0 for a result, 1 for an error in its place."""
    job = Job.read(arguments[0])
    folder = Path(job.folder)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with warnings.catch_warnings(), locked(folder / LOCK):
        for printed in (DataWarning, UnequalStartWarning):  # by the command, once for all runs
            warnings.simplefilter("ignore", printed)
        if finished(job):  # by a process that was left over from another command
            return 0
        try:
            with fast_paths(**job.fast_paths):
                result = work(job)
        except Exception as error:
            if not isinstance(error, ZooError):
                traceback.print_exc()
            message = str(error) if isinstance(error, ZooError) else f"{type(error).__name__}: {error}"
            final = isinstance(error, TrainingError)
            found = {"error": message, "final": final, "circumstances": circumstances()}
            write_json(folder / RESULT, {"hash": job.hash, **found})
            return 1
        made = circumstances(result["report"]["device"])
        write_json(folder / RESULT, {"hash": job.hash, **result, "circumstances": made})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
