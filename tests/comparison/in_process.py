"""Runs in this process instead of processes of their own, which take seconds to start."""

from importlib import import_module

import pytest

from zoo.analysis.measuring import Costs
from zoo.comparison.run import launchers, worker

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TASK = "copy:train_examples=80,heldout_examples=8,length=4"
GENERATION = {"num_beams": 1, "max_length": 6}


def run_here(patch: pytest.MonkeyPatch) -> None:
    """Let comparisons run in this process, without measurements of memory and time."""
    patch.setitem(launchers.LAUNCHERS, "local", launch)
    patch.setattr(worker, "measure", lambda model, batch, **known: Costs(model.num_parameters(), 0))


def launch(jobs, processes, options, announce):
    for job in jobs:
        announce(job)
        launchers.run(job, lambda module, argument: import_module(module).main([str(argument)]))


def quality(run):
    """What a run comes to, apart from time and memory."""
    report = run.report
    losses = [{key: point.get(key) for key in ("step", "tokens", "loss", "heldout_loss")} for point in run.curve]
    scores = {name: score["value"] for name, score in report["scores"].items()}
    return scores, report["train_loss"], report["heldout_loss"], report["train_tokens"], losses, run.outputs
