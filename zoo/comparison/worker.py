"""Trains one variant in a process of its own: `python -m zoo.comparison.worker RUN/job.json`.

A process of its own makes its peak memory its own, and keeps what goes wrong from the other runs.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from transformers.utils import logging

from zoo.errors import ZooError
from zoo.training import train

from .files import CHECKPOINT, RESULT, write_json
from .job import Job
from .probe import MOST_EXAMPLES, Probe


def work(job: Job) -> None:
    """Train, save, and write down what the model answers.

    Args:
        job: What to do.
    """
    folder = Path(job.folder)
    for module in job.modules:
        importlib.import_module(module)
    task = job.recipe.data_task()
    splits = task.load(job.data, heldout=job.heldout, columns=job.columns, seed=job.seed)
    result = train(
        job.name,
        job.recipe.task,
        data=splits,
        recipe=job.recipe,
        tokenizer=Path(job.tokenizer),
        output_dir=folder / CHECKPOINT,
        force=True,
        seed=job.seed,
        progress=job.progress,
    )
    few = splits.heldout.select(range(min(MOST_EXAMPLES, len(splits.heldout))))
    sources = task.samples(few, MOST_EXAMPLES)
    probe = Probe(job.modules, tuple(sources), tuple(task.references(few)), task.model_task)
    probe.write(folder, probe.ask(result.model, result.tokenizers.source, result.tokenizers.target))
    write_json(folder / RESULT, {"report": result.report.to_dict(), "outputs": result.outputs})


def main(arguments: list[str]) -> int:
    """Run a job's file.

    Args:
        arguments: The file.

    Returns:
        The exit code: 0 where there is a result, 1 where there is an error in its place.
    """
    job = Job.read(arguments[0])
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        work(job)
    except Exception as error:
        if not isinstance(error, ZooError):
            traceback.print_exc()
        message = str(error) if isinstance(error, ZooError) else f"{type(error).__name__}: {error}"
        write_json(Path(job.folder) / RESULT, {"error": message})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
