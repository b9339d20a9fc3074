"""How long building, loading and saving a model take, compared with safetensors alone and transformers' own class.

    python scripts/bench/loading.py                       # 400 MB, files in memory as after a first read
    OMP_NUM_THREADS=1 python scripts/bench/loading.py --document    # and put the table into docs/performance.md

All have the same weights: transformers' GPT-2, and the zoo's conversion of it. Times are medians over rounds in
which all take turns: by the clock, which a second thread saves, and by the processor, which other processes disturb
less. Ratios are to `safetensors` alone in the same round, or to who is named first.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from documenting import described, document, to_table
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import zoo

Times = dict[tuple[str, str], list[tuple[float, float]]]


def config_of(megabytes: int) -> GPT2Config:
    """A GPT-2 of this size, with layers of width 768."""
    width, vocabulary, positions = 768, 32_000, 1024
    layer = 12 * width * width + 13 * width
    layers = max(1, round((megabytes * 1e6 / 4 - (vocabulary + positions) * width) / layer))
    return GPT2Config(vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=12, n_positions=positions)


def use_once(load: Callable[[], dict[str, Tensor] | nn.Module]) -> None:
    """Load, and read every number once, as the first use of weights does."""
    weights = load()
    for tensor in (weights.state_dict() if isinstance(weights, nn.Module) else weights).values():
        tensor.sum()


def measure(work: dict[str, dict[str, Callable[[], Any]]], rounds: int) -> Times:
    """Run everything in turns; seconds of every round but the first, by the clock and by the processor."""
    seconds: Times = {(kind, name): [] for kind in work for name in work[kind]}
    for turn in range(rounds + 1):
        for (kind, name), times in seconds.items():
            gc.collect()
            began, used_before = time.perf_counter(), time.process_time()
            made = work[kind][name]()
            if turn:
                times.append((time.perf_counter() - began, time.process_time() - used_before))
            del made
    return seconds


def work_in(folder: Path, native: Any, ours: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    """Work on the same weights by kind and by who does it; first the one that others are compared with."""
    theirs_at, ours_at, plain_at = folder / "native", folder / "zoo", folder / "plain.safetensors"
    native.save_pretrained(theirs_at)
    ours.save_pretrained(ours_at)
    state = {name: tensor.clone() for name, tensor in load_file(ours_at / "model.safetensors").items()}
    save_file(state, plain_at)
    variant, settings = ours.config.variant, {"num_hidden_layers": ours.config.num_hidden_layers}
    settings |= {"hidden_size": ours.config.hidden_size, "vocab_size": ours.config.vocab_size}
    settings |= {"num_attention_heads": 12, "intermediate_size": 4 * ours.config.hidden_size}
    loads: dict[str, Callable[[], Any]] = {
        "safetensors": lambda: load_file(plain_at),
        "transformers": lambda: GPT2LMHeadModel.from_pretrained(theirs_at),
        "zoo": lambda: zoo.load(ours_at),
        "zoo, no hash": lambda: zoo.load(ours_at, verify=False),
        "zoo's class": lambda: type(ours).from_pretrained(ours_at, verify=False),
    }
    return {
        "build": {
            "transformers": lambda: GPT2LMHeadModel(native.config),
            "zoo": lambda: zoo.build(variant, "causal-lm", **settings),
        },
        "load": loads,
        "load, and use once": {name: partial(use_once, load) for name, load in loads.items()},
        "save": {
            "safetensors": lambda: save_file(state, plain_at),
            "transformers": lambda: native.save_pretrained(theirs_at),
            "zoo": lambda: ours.save_pretrained(ours_at),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--document", action="store_true", help="put the table into docs/performance.md")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    native = GPT2LMHeadModel(config_of(arguments.megabytes))
    ours = zoo.convert(native)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        work = work_in(Path(scratch), native, ours)
        seconds = measure(work, arguments.rounds)
        size = (Path(scratch) / "plain.safetensors").stat().st_size
    threads = f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
    about = f"{described()}; {size / 1e6:.0f} MB, {threads}, the median of {arguments.rounds} rounds"
    table = f"{about}\n\n{to_markdown(seconds)}"
    print(table, end="")
    if arguments.document:
        document("scripts/bench/loading.py", table)


def to_markdown(seconds: Times) -> str:
    rows, first = [], next(iter(seconds))
    for (kind, name), times in seconds.items():
        if kind != first[0]:
            first = kind, name
        clock, processor = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        pairs = list(zip(times, seconds[first], strict=True))
        ratios = (statistics.median(mine[way] / theirs[way] for mine, theirs in pairs) for way in (0, 1))
        rows.append([f"{kind}: {name}", f"{clock:.1f}", f"{processor:.1f}", *(f"{ratio:.1f}" for ratio in ratios)])
    return to_table(["work", "ms", "ms of the processor", "ratio", "ratio of the processor's"], rows)


if __name__ == "__main__":
    main()
