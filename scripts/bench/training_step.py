"""A step of the trainer of `zoo train`, and a run's fixed cost, next to a loop by hand with the same model.

    OMP_NUM_THREADS=1 python scripts/bench/training_step.py
    OMP_NUM_THREADS=1 python scripts/bench/training_step.py --profile 25      # the trainer's functions, by own time

Both train gpt2-style with width 80 and 2 layers on 12 blocks of 64 characters, with dropout and clipping. They take
turns in one process; times are of the processor, in all threads.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, get_cosine_schedule_with_warmup

import zoo
from zoo.training import train

SIZES: dict[str, Any] = {
    "hidden_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 320,
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
ROWS, LENGTH = 12, 64
TEXT = "the cat and dog saw a man who ran from his house to find where they were hidden in old town"


class Clock(TrainerCallback):
    """Seconds of the processor at the end of every step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.process_time())


def of_trainer(text: Path, steps: int) -> tuple[float, float]:
    """Train with the zoo's trainer; seconds of a step, and of the run without its steps."""
    clock, began = Clock(), time.process_time()
    given: dict[str, Any] = {
        "data": text,
        "settings": SIZES,
        "recipe": "nanogpt-cpu",
        "callbacks": [clock],
        "scored": False,
    }
    train("gpt2-style", max_steps=steps, progress=False, use_cpu=True, **given)
    whole = time.process_time() - began
    step = statistics.median(after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False))
    return step, whole - (clock.ends[-1] - clock.ends[0])


def by_hand(text: Path, steps: int) -> float:
    """Train in a loop; seconds of a step."""
    letters = sorted(set(text.read_text()))
    ids = torch.tensor([letters.index(letter) + 3 for letter in text.read_text()])
    model = zoo.build(
        "gpt2-style", seed=0, vocab_size=len(letters) + 3, max_position_embeddings=LENGTH, **SIZES
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    schedule, times = get_cosine_schedule_with_warmup(optimizer, 100, steps), []
    for _ in range(steps):
        began = time.process_time()
        starts = torch.randint(len(ids) - LENGTH, (ROWS, 1))
        batch = ids[starts + torch.arange(LENGTH)]
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        times.append(time.process_time() - began)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--profile", type=int, metavar="N", help="profile the trainer, and print N functions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text(" ".join(random.Random(0).choices(TEXT.split(), k=20_000)))
        of_trainer(text, 5)  # imports
        if arguments.profile:
            profile = cProfile.Profile(time.process_time)
            profile.runcall(of_trainer, text, arguments.steps)
            pstats.Stats(profile).sort_stats("tottime").print_stats(arguments.profile)
            return
        rounds = [(of_trainer(text, arguments.steps), by_hand(text, arguments.steps)) for _ in range(arguments.rounds)]
    steps, fixed, hands = (
        [1000 * value for value in column] for column in zip(*((*a, b) for a, b in rounds), strict=True)
    )
    ratio = statistics.median(step / hand for step, hand in zip(steps, hands, strict=True))
    print(f"{torch.get_num_threads()} threads, {arguments.rounds} rounds of {arguments.steps} steps; medians")
    print(f"a step of zoo train: {statistics.median(steps):.1f} ms")
    print(f"a step by hand: {statistics.median(hands):.1f} ms; {ratio:.2f} times")
    print(f"a run without its steps: {statistics.median(fixed):.0f} ms")


if __name__ == "__main__":
    main()
