"""The Transformer chapter of Dive into Deep Learning, trained by its own code and by the zoo, side by side.

    pip install --no-deps --target originals d2l==0.17.6
    python scripts/bench/reproductions/chapter.py --data PAIRS --package originals --chapter CLASSES.py

PAIRS is a file of tab-separated English and French sentences; further columns are not read. CLASSES.py holds the
classes that the chapter defines itself (TransformerEncoder, TransformerDecoder and what they are made of). Runs
alternate, each in its own process with the same number of threads.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fresh_process import in_fresh_process
from original_chapter import NUM_STEPS, run_original

import zoo
from zoo.training.trainer import ZooTrainer

RUNS = ("original", "d2l-style+faithful", "d2l-style")


def read_pairs(file: Path, rows: int) -> list[tuple[str, str]]:
    with file.open(encoding="utf-8") as stream:
        lines = [line.rstrip("\r\n").split("\t") for _, line in zip(range(rows), stream, strict=False)]
    return [(line[0], line[1]) for line in lines]


def spaced(text: str) -> str:
    """Write a sentence as the chapter does: lower case, a blank before punctuation, every blank the same."""
    text = text.replace("\u202f", " ").replace("\xa0", " ").lower()
    pieces = [
        f" {letter}" if i and letter in ",.!?" and text[i - 1] != " " else letter for i, letter in enumerate(text)
    ]
    return "".join(pieces)


def chapter_bleu(output: str, reference: str, k: int = 2) -> float:
    """The chapter's BLEU; 0 where an output is too short for it."""
    tokens, wanted = output.split(), reference.split()
    if len(tokens) < k:
        return 0.0
    score = math.exp(min(0.0, 1 - len(wanted) / len(tokens)))
    for n in range(1, k + 1):
        have, want = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (tokens, wanted))
        score *= ((have & want).total() / (len(tokens) - n + 1)) ** (0.5**n)
    return score


def run_zoo(name: str, pairs: list[tuple[str, str]], seed: int, epochs: int) -> dict[str, Any]:
    """Train and predict with the zoo, by the recipe that ships with it."""
    spent: list[float] = []

    def timed(trainer: ZooTrainer, *args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        outcome = train(trainer, *args, **kwargs)
        spent.append(time.process_time() - began)
        return outcome

    train = ZooTrainer.train
    with tempfile.TemporaryDirectory() as folder, patch.object(ZooTrainer, "train", timed):
        file = Path(folder, "pairs.tsv")
        file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
        result = zoo.train(
            name,
            recipe="d2l",
            data=file,
            heldout=file,
            columns=(0, 1),
            seed=seed,
            num_train_epochs=epochs,
            progress=False,
            use_cpu=True,
        )
    report, tokenizers = result.report, result.tokenizers
    return {
        "loss": report.history[-1]["loss"],
        "outputs": [spaced(output) for output in result.outputs],
        "seconds": report.train_seconds,
        "cpu_seconds": spent[0],
        "prediction_seconds": report.evaluation_seconds,
        "vocabularies": [len(tokenizers.source), len(tokenizers.target)],
        "parameters": report.num_parameters,
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(arguments.threads)
    pairs = read_pairs(arguments.data, arguments.rows)
    if arguments.one == "original":
        found = run_original(arguments.package, arguments.chapter, pairs, arguments.seed, arguments.epochs)
    else:
        found = run_zoo(arguments.one, pairs, arguments.seed, arguments.epochs)
    outputs = found.pop("outputs")
    scores = [chapter_bleu(output, spaced(target)) for output, (_, target) in zip(outputs, pairs, strict=True)]
    return {**found, "run": arguments.one, "seed": arguments.seed, "bleu": statistics.fmean(scores)}


def show(rows: list[dict[str, Any]]) -> None:
    """Print means, and the smallest and largest value of the seeds."""
    columns = ("loss per token", "BLEU (k=2)", "seconds", "CPU seconds")
    print(f"{'run':20} {' '.join(f'{column:>24}' for column in columns)} {'parameters':>11}  vocabularies")
    for name in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == name]
        cells = []
        for key, digits in (("loss", 4), ("bleu", 4), ("seconds", 1), ("cpu_seconds", 1)):
            values = [row[key] for row in mine]
            span = f"{min(values):.{digits}f}-{max(values):.{digits}f}"
            cells.append(f"{statistics.fmean(values):.{digits}f} ({span})")
        line = " ".join(f"{cell:>24}" for cell in cells)
        print(f"{name:20} {line} {mine[0]['parameters']:>11,}  {mine[0]['vocabularies']}")


def parser_of(description: str | None, *, epochs: int, threads: int) -> argparse.ArgumentParser:
    """Make a parser of the data, the chapter's code, and the length of training."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="tab-separated sentence pairs")
    parser.add_argument("--package", type=Path, required=True, help="the folder that holds d2l 0.17.6")
    parser.add_argument("--chapter", type=Path, required=True, help="a file with the chapter's own classes")
    parser.add_argument("--rows", type=int, default=1000, help="rows to train on (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=epochs, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=threads, help="(default: %(default)s)")
    return parser


def main() -> None:
    parser = parser_of(__doc__, epochs=200, threads=2)
    parser.add_argument("--seeds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--runs", default=",".join(RUNS), help="what to run (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="where to write every run as JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments)))
        return
    given = ["--data", arguments.data, "--package", arguments.package, "--chapter", arguments.chapter]
    given += ["--rows", arguments.rows, "--epochs", arguments.epochs]
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.runs.split(","):
            rows.append(in_fresh_process(__file__, given, name, seed, arguments.threads))
            print(json.dumps(rows[-1]), file=sys.stderr)
            if arguments.output is not None:
                arguments.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    print(f"{arguments.epochs} epochs of {arguments.rows} rows, at most {NUM_STEPS} steps; {arguments.threads} threads")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    show(rows)


if __name__ == "__main__":
    main()
