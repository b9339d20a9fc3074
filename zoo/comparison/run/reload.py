"""Asks a saved model in another process what it was asked before: `python -m zoo.comparison.run.reload RUN`.

The model comes from transformers' Auto classes after `import zoo`, as a user loads it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

import zoo  # noqa: F401
from zoo.base.files import read_json, write_json
from zoo.base.folders import TARGET_FOLDER
from zoo.fast import fast_paths
from zoo.fast.switches import without_trials
from zoo.models import TASK_CLASSES
from zoo.training.predicting import can_generate

from ..files import ANSWERS, CHECKPOINT, QUESTIONS, RELOADED

MOST_EXAMPLES = 8
LONGEST_TEXT = 32  # Tokens that are read or written

TOLERANCE = 1e-5  # Between logits of the same weights and inputs: float rounding, where threads add up in another order


@dataclass(frozen=True)
class Probe:
    """Questions to a model."""

    modules: Sequence[str]
    sources: Sequence[str]
    references: Sequence[str] = ()  # Targets for the logits of an encoder-decoder; without any, the sources are
    task: str = "seq2seq-lm"
    fast_paths: Mapping[str, str] = field(default_factory=dict)  # Modes that it is asked with

    @torch.no_grad()
    @without_trials()
    def ask(
        self, model: PreTrainedModel, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
    ) -> dict[str, Tensor]:
        """`logits`, (batch_size, ..., num_ids), and as `outputs` the ids that a model writes greedily, or the best."""
        limit = min(LONGEST_TEXT, model.config.max_position_embeddings or LONGEST_TEXT)
        reading: Any = dict(padding=True, truncation=True, max_length=limit, return_tensors="pt", padding_side="right")
        read: dict[str, Any] = dict(source(list(self.sources), **reading).to(model.device))
        model.eval()
        if not model.config.is_encoder_decoder:
            logits = model(**read).logits
            outputs = logits.argmax(dim=-1)
        else:
            wanted = target(list(self.references or self.sources), **reading).to(model.device)
            labels = wanted["input_ids"].masked_fill(wanted["attention_mask"] == 0, -100)
            logits = model(**read, labels=labels).logits
            options = {"do_sample": False, "num_beams": 1, "max_length": limit}
            outputs = model.generate(**read, **options) if can_generate(model) else logits.argmax(dim=-1)
        return {"logits": logits.float().cpu().contiguous(), "outputs": outputs.cpu().contiguous()}

    def write(self, folder: Path, answers: dict[str, Tensor]) -> None:
        write_json(folder / QUESTIONS, asdict(self))
        save_file(answers, folder / ANSWERS)


def check(folder: Path) -> dict[str, object]:
    """Load the checkpoint in a run's folder and compare its answers: the fields of [`zoo.comparison.ReloadCheck`][]."""
    probe, before = Probe(**read_json(folder / QUESTIONS)), load_file(folder / ANSWERS)
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


def since_start() -> float:
    """Seconds since this process was started."""
    return time.time() - psutil.Process().create_time()


def main(arguments: Sequence[str]) -> int:
    """Check the model in a run's folder, and write down what was found."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = Path(arguments[0])
    write_json(folder / RELOADED, {**check(folder), "seconds": since_start()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
