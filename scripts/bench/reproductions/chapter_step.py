"""The parts of a training step of the Transformer chapter of Dive into Deep Learning, in its own code and in the zoo.

    python scripts/bench/reproductions/chapter_step.py --package originals --chapter CLASSES.py

The arguments are those of chapter.py. Steps take turns, on the same random batches; times are medians, in milliseconds.
A batch of one sentence of two tokens shows what calling the operators costs when they have nothing to do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from original_chapter import BATCH_SIZE, NUM_STEPS, load_original, new_net
from torch import Tensor

import zoo
from zoo.training.recipe import load_recipe

RECIPE = load_recipe("d2l")
PARTS = ("forward", "backward", "clipping", "optimiser")
SOURCES, TARGETS = 234, 295
"""Words of the chapter's two vocabularies on its first 1,000 rows."""

Batch = tuple[Tensor, Tensor, Tensor]
Step = Callable[[Batch], Iterator[None]]


def original_step(package: Path, chapter: Path) -> Step:
    """The chapter's step, as `train_seq2seq` of its package does it; every part ends in a `yield`."""
    d2l, classes = load_original(package, chapter)
    net = new_net(d2l, classes, SOURCES, TARGETS)
    net.train()
    optimizer, criterion = torch.optim.Adam(net.parameters(), lr=0.005), d2l.MaskedSoftmaxCELoss()

    def step(batch: Batch) -> Iterator[None]:
        sources, targets, lengths = batch
        begin = torch.full((len(targets), 1), 3)
        outputs, _ = net(sources, torch.cat((begin, targets[:, :-1]), dim=1), lengths)
        loss = criterion(outputs, targets, lengths).sum()
        yield
        loss.backward()
        yield
        d2l.grad_clipping(net, 1)
        yield
        optimizer.step()
        optimizer.zero_grad()
        yield

    return step


def zoo_step(name: str) -> Step:
    """The same of a variant, with what `zoo train` steps with."""
    sizes = {"vocab_size": SOURCES, "decoder_vocab_size": TARGETS, **RECIPE.model_settings(name)}
    model = zoo.build(name, "seq2seq-lm", **sizes).train()
    rate, limit = (RECIPE.arguments[argument] for argument in ("learning_rate", "max_grad_norm"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, fused=True)

    def step(batch: Batch) -> Iterator[None]:
        sources, targets, lengths = batch
        is_token = torch.arange(sources.shape[1]) < lengths[:, None]
        labels = targets.masked_fill(~is_token, -100)
        loss = model(input_ids=sources, attention_mask=is_token.long(), labels=labels).loss
        yield
        loss.backward()
        yield
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        yield
        optimizer.step()
        optimizer.zero_grad()
        yield

    return step


def batch_of(rows: int, length: int) -> Batch:
    """Random sentences, of lengths up to the longest."""
    lengths = torch.randint(2, length + 1, (rows,))
    lengths[0] = length
    return torch.randint(4, SOURCES, (rows, length)), torch.randint(4, TARGETS, (rows, length)), lengths


def measure(steps: dict[str, Step], rows: int, length: int, rounds: int) -> dict[str, list[float]]:
    """The medians of every part, in milliseconds."""
    times: dict[str, list[list[float]]] = {name: [] for name in steps}
    for _ in range(rounds + 10):
        batch = batch_of(rows, length)
        for name, step in steps.items():
            parts = []
            began = time.perf_counter()
            for _ in step(batch):
                parts.append(time.perf_counter() - began)
                began = time.perf_counter()
            times[name].append([1000 * part for part in parts])
    return {name: [statistics.median(part) for part in zip(*found[10:], strict=True)] for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True, help="the folder that holds d2l 0.17.6")
    parser.add_argument("--chapter", type=Path, required=True, help="a file with the chapter's own classes")
    parser.add_argument("--rounds", type=int, default=100, help="steps of each (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    steps = {name: zoo_step(name) for name in ("d2l-style+faithful", "d2l-style")}
    steps |= {"original": original_step(arguments.package, arguments.chapter)}
    print(f"| batch | run | {' | '.join(PARTS)} | in all |\n|---|---|{'---:|' * (len(PARTS) + 1)}")
    for rows, length in ((BATCH_SIZE, NUM_STEPS), (BATCH_SIZE, NUM_STEPS // 2), (1, 2)):
        for name, parts in measure(steps, rows, length, arguments.rounds).items():
            cells = " | ".join(f"{part:.1f}" for part in (*parts, sum(parts)))
            print(f"| {rows} x {length} | {name} | {cells} |")


if __name__ == "__main__":
    main()
