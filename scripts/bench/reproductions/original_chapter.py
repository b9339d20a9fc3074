"""Runs the chapter "Transformer" of Dive into Deep Learning with its own code, as in the package `d2l`."""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch

BATCH_SIZE, NUM_STEPS = 64, 10
UNUSED = ("torchvision", "PIL", "pandas", "requests", "IPython", "matplotlib", "matplotlib_inline")
"""Imports of the package that the chapter's training does not need."""


class Losses:
    """Replaces the chapter's live figure, which would take time, and keeps the last point."""

    last: float = math.nan

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def add(self, epoch: float, values: tuple[float, ...]) -> None:
        Losses.last = float(values[0])


def load_original(package: Path, chapter: Path) -> tuple[ModuleType, dict[str, Any]]:
    """Import the package from its folder, and the classes that only a file of the chapter defines."""
    missing = [name for name in UNUSED if importlib.util.find_spec(name) is None]
    parts = [part for name in missing for part in (name, f"{name}.pyplot", f"{name}.transforms")]
    sys.modules.update({part: MagicMock() for part in parts})
    sys.path.insert(0, str(package))
    d2l = importlib.import_module("d2l.torch")
    for part in parts:  # or later imports of these packages find them
        del sys.modules[part]
    d2l.__dict__["Animator"] = Losses
    sys.modules["d2l"].torch = d2l  # type: ignore[attr-defined]
    classes: dict[str, Any] = {"d2l": d2l}
    exec(compile(chapter.read_text(encoding="utf-8"), str(chapter), "exec"), classes)
    return d2l, classes


def new_net(d2l: ModuleType, classes: dict[str, Any], sources: int, targets: int) -> Any:
    """Build the chapter's model, in training mode, for these numbers of words."""
    sizes = (32, 32, 32, 32, [32], 32, 64, 4, 2, 0.1)
    encoder, decoder = classes["TransformerEncoder"](sources, *sizes), classes["TransformerDecoder"](targets, *sizes)
    return d2l.EncoderDecoder(encoder, decoder)


def run_original(package: Path, chapter: Path, pairs: list[tuple[str, str]], seed: int, epochs: int) -> dict[str, Any]:
    """Train and predict as the chapter does: the last loss per token, predictions as it spells them, and seconds."""
    d2l, classes = load_original(package, chapter)
    text = "\n".join("\t".join(pair) for pair in pairs)
    d2l.__dict__["read_data_nmt"] = lambda: text
    random.seed(seed)
    torch.manual_seed(seed)
    batches, source_vocab, target_vocab = d2l.load_data_nmt(BATCH_SIZE, NUM_STEPS, num_examples=None)
    net = new_net(d2l, classes, len(source_vocab), len(target_vocab))
    device = torch.device("cpu")
    began, cpu_began = time.perf_counter(), time.process_time()
    d2l.train_seq2seq(net, batches, 0.005, epochs, target_vocab, device)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    began = time.perf_counter()
    with torch.no_grad():
        outputs = [
            d2l.predict_seq2seq(net, d2l.preprocess_nmt(source), source_vocab, target_vocab, NUM_STEPS, device)[0]
            for source, _ in pairs
        ]
    return {
        "loss": Losses.last * NUM_STEPS,  # the chapter divides the loss of a sentence by all of its steps
        "outputs": outputs,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "prediction_seconds": time.perf_counter() - began,
        "vocabularies": [len(source_vocab), len(target_vocab)],
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
    }
