"""nanoGPT's recipe for a CPU, trained by its own script and by the zoo, side by side.

    git clone https://github.com/karpathy/nanoGPT
    python scripts/bench/reproductions/nanogpt.py --data TEXT --package nanoGPT

Both see the first nine tenths of TEXT, and are evaluated alike: on all windows of the rest, one after the other, and
as nanoGPT's script does it, on 240 random ones: on many draws, and on the one that its script makes at the end of the
run of its README, which is the first here. Runs alternate, each in its own process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fresh_process import in_fresh_process
from torch import Tensor
from torch.nn import functional as F

import zoo

BLOCK, WINDOWS = 64, 240
DRAWS = 100
"""How often random windows are drawn, to see how much the estimate varies."""

SEED = 1337
"""The one that nanoGPT's script fixes."""

OPTIONS = {
    "device": "cpu",
    "compile": False,
    "eval_iters": 20,
    "log_interval": 500,
    "block_size": BLOCK,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "max_iters": 2000,
    "lr_decay_iters": 2000,
    "dropout": 0.0,
    "out_dir": "out",
}
"""Settings for a CPU in nanoGPT's README."""

ONLY_AT_THE_END = {"eval_interval": OPTIONS["max_iters"]}
"""To evaluate as often as the zoo does."""

Predict = Callable[[Tensor], Tensor]


def run_original(
    package: Path, text: str, seed: int, options: dict[str, Any]
) -> tuple[Predict, list[int], float, list[int]]:
    """Train by nanoGPT's script in a copy of it, where the seed is another, and what it evaluates last is kept."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "nanoGPT")
        shutil.copytree(package, folder, ignore=shutil.ignore_patterns(".git", "out*"))
        data = folder / "data" / "shakespeare_char"
        (data / "input.txt").write_text(text, encoding="utf-8")
        subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, stdout=subprocess.DEVNULL)
        script = (folder / "train.py").read_text(encoding="utf-8")
        script = after(script, "torch.manual_seed(1337 + seed_offset)", f"; torch.manual_seed({seed}); heldout = []")
        drawn = "ix = torch.randint(len(data) - block_size, (batch_size,))"
        script = after(script, drawn, "; heldout.extend(ix.tolist() if split == 'val' else ())")
        script += f"\nnp.save('windows.npy', heldout[-{WINDOWS}:])\n"
        (folder / "train.py").write_text(script, encoding="utf-8")
        given = [f"--{name}={value}" for name, value in (OPTIONS | options).items()]
        began = time.perf_counter()
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *given]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        windows = np.load(folder / "windows.npy").tolist()
        sys.path.insert(0, str(folder))
        module: Any = importlib.import_module("model")
        checkpoint = torch.load(folder / "out" / "ckpt.pt", weights_only=True)
        model = module.GPT(module.GPTConfig(**checkpoint["model_args"]))
        model.load_state_dict(checkpoint["model"])
    model.eval()
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    # Without targets it would compute the last position alone.
    return lambda ids: model(ids := ids.contiguous(), ids)[0], [letters[letter] for letter in text], seconds, windows


def after(script: str, line: str, more: str) -> str:
    """Extend the only such line of the script."""
    if script.count(line) != 1:
        raise SystemExit(f"nanoGPT's train.py has no line {line}: this is written for another version of it")
    return script.replace(line, line + more)


def run_zoo(name: str, data: Path, text: str, seed: int) -> tuple[Predict, list[int], float]:
    options: dict[str, Any] = {"progress": False, "scored": False, "use_cpu": True, "report_to": "none"}
    options |= {"settings": {"initializer_width": 1}, "decay": "transformers"}  # nanoGPT: 0.02, norms do not decay
    result = zoo.train(name, recipe="nanogpt-cpu", data=data, seed=seed, **options)
    model = result.model
    ids = result.tokenizers.source(text, add_special_tokens=False)["input_ids"]
    return lambda rows: model(input_ids=rows).logits, ids, result.report.train_seconds


@torch.inference_mode()
def losses(predict: Predict, ids: Tensor, starts: Tensor) -> Tensor:
    """The mean loss in each window, in nats. *Shape:* (num_windows,)."""
    windows = ids[starts[:, None] + torch.arange(BLOCK + 1)]
    found = []
    for rows in windows.split(128):
        logits = predict(rows[:, :-1]).transpose(1, 2)
        found.append(F.cross_entropy(logits, rows[:, 1:], reduction="none").mean(dim=1))
    return torch.cat(found)


def evaluate(predict: Predict, ids: list[int], windows: list[int]) -> dict[str, float]:
    """Evaluate on the last tenth: all of it, as nanoGPT does, and on given windows."""
    heldout = torch.tensor(ids[int(0.9 * len(ids)) :])
    whole = losses(predict, heldout, torch.arange(0, len(heldout) - BLOCK, BLOCK)).mean().item()
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(heldout) - BLOCK, (DRAWS, WINDOWS), generator=generator)
    estimates = losses(predict, heldout, starts.flatten()).view(DRAWS, WINDOWS).mean(dim=1)
    return {
        "whole": whole,
        "estimate": estimates.mean().item(),
        "deviation": estimates.std().item(),
        "reached": (estimates < 1.885).float().mean().item(),  # what is written as 1.88
        "given": losses(predict, heldout, torch.tensor(windows)).mean().item(),
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(arguments.threads)
    text = arguments.data.read_text(encoding="utf-8")
    if arguments.one == "nanoGPT":
        options = ONLY_AT_THE_END if arguments.windows else {}
        predict, ids, seconds, windows = run_original(arguments.package.absolute(), text, arguments.seed, options)
    else:
        predict, ids, seconds = run_zoo(arguments.one, arguments.data, text, arguments.seed)
    found = {"run": arguments.one, "seed": arguments.seed, "seconds": seconds}
    if not arguments.windows:  # the first run, which chooses them for the others
        return {**found, **evaluate(predict, ids, windows), "windows": windows}
    return {**found, **evaluate(predict, ids, json.loads(arguments.windows))}


def show(rows: list[dict[str, Any]]) -> None:
    columns = ("run", "seed", "whole held-out text", "240 random windows", "of 100 draws, 1.88 or less", "its README's")
    print(f"| {' | '.join(columns)} | seconds |\n{'|---' * (len(columns) + 1)}|")
    for row in rows:
        estimate = f"{row['estimate']:.3f} ± {row['deviation']:.3f}"
        print(
            f"| {row['run']} | {row['seed']} | {row['whole']:.3f} | {estimate} | {row['reached']:.0%} "
            f"| {row['given']:.3f} | {row['seconds']:.0f} |"
        )
    for name in dict.fromkeys(row["run"] for row in rows):
        print(f"{name}: {statistics.fmean(row['whole'] for row in rows if row['run'] == name):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the text")
    parser.add_argument("--package", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--seeds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--runs", default="nanoGPT,gpt2-style", help="what to run (default: %(default)s)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--windows", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments)))
        return
    given = ["--data", arguments.data, "--package", arguments.package]
    first = in_fresh_process(__file__, given, "nanoGPT", SEED, arguments.threads)
    given += ["--windows", json.dumps(first.pop("windows"))]
    rows = [first]
    for seed in range(arguments.seeds):
        for name in arguments.runs.split(","):
            rows.append(in_fresh_process(__file__, given, name, seed, arguments.threads))
            print(json.dumps(rows[-1]), file=sys.stderr)
    show(rows)


if __name__ == "__main__":
    main()
