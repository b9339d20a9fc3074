"""Loads a saved model in another process and asks it again: `python -m zoo.comparison.run.reload RUN`.

The model comes from transformers' Auto classes after `import zoo`, as a user loads it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer
from transformers.utils import logging

import zoo  # noqa: F401
from zoo.base.files import write_json
from zoo.base.folders import TARGET_FOLDER
from zoo.fast import fast_paths
from zoo.models import TASK_CLASSES

from ..files import CHECKPOINT, RELOADED
from .probe import read_probe
from .timings import since_start

TOLERANCE = 1e-5  # Between logits of the same weights and inputs: float rounding, where threads add up in another order


def check(folder: Path) -> dict[str, object]:
    """Load the checkpoint in a run's folder and compare its answers: the fields of [`zoo.comparison.ReloadCheck`][]."""
    probe, before = read_probe(folder)
    for module in probe.modules:
        importlib.import_module(module)
    checkpoint = folder / CHECKPOINT
    auto_class = getattr(transformers, TASK_CLASSES[probe.task][0])
    source = AutoTokenizer.from_pretrained(checkpoint)
    separate = (checkpoint / TARGET_FOLDER).is_dir()
    target = AutoTokenizer.from_pretrained(checkpoint / TARGET_FOLDER) if separate else source
    with fast_paths(**probe.fast_paths):
        after = probe.ask(auto_class.from_pretrained(checkpoint), source, target)
    same_shape = before["logits"].shape == after["logits"].shape
    difference = (before["logits"] - after["logits"]).abs().max().item() if same_shape else float("inf")
    same = torch.equal(before["outputs"], after["outputs"])
    return {
        "auto_class": auto_class.__name__,
        "largest_difference": difference,
        "outputs_equal": same,
        "equal": difference <= TOLERANCE and same,
    }


def main(arguments: Sequence[str]) -> int:
    """Check the model in a run's folder, and write down what was found."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = Path(arguments[0])
    write_json(folder / RELOADED, {**check(folder), "seconds": since_start()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
