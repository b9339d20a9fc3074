"""Speed of training on the CPU by how threads wait for each other, and by what the allocator does with freed memory.

    python scripts/bench/processes.py threads [--steps 60] [--rounds 3]
    python scripts/bench/processes.py memory [--steps 12] [--rounds 1]
    python scripts/bench/processes.py memory --document    # and put the table into docs/performance.md

`threads` trains a small model alone and next to another busy process: on one thread, and on one for every core, which
wait as OpenMP does by default, asleep, or as `zoo` makes them (zoo/base/processes.py). `memory` trains the sizes of
the recipe `books`. Every row is a fresh process, and all take turns. Give it an idle machine: with other work OpenMP's
default can be ten times as slow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from documenting import described, document, to_table

from zoo.base.processes import KEPT_MEMORY, SHORT_WAITS

WAITS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "OpenMP's default": {},
    "asleep": {"OMP_WAIT_POLICY": "passive"},
    "as zoo": SHORT_WAITS,
}
ALLOCATORS = {
    "glibc's default": {},
    "large pages": {"THP_MEM_ALLOC_ENABLE": "1"},
    "as zoo: memory kept": KEPT_MEMORY,
}
VARIANTS = {"llama-style": "language-modeling:block_size=256", "gpt-bert-style": "masked-next-token:block_size=256"}
RUN = """
import sys
from zoo.training import load_recipe, train

variant, task, steps = sys.argv[1:]
options = {"max_steps": int(steps), "scored": False, "progress": False}
if task != "translation":
    options |= {"data": "en_pt+phrases", "columns": ["en"], "settings": load_recipe("books").model}
    options |= {"per_device_train_batch_size": 32, "bf16": True}
report = train(variant, task, **options).report
print(report.train_tokens_per_second, report.peak_memory)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("threads", "memory"))
    parser.add_argument("--steps", type=int, help="updates, by default 60 and 12")
    parser.add_argument("--rounds", type=int, help="by default 3 and 1")
    parser.add_argument("--document", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    measure, steps, rounds = {"threads": (threads, 60, 3), "memory": (memory, 12, 1)}[given.what]
    steps, rounds = given.steps or steps, given.rounds or rounds
    text = f"{described()}; {steps} steps, the median of {rounds}\n\n{measure(steps, rounds)}"
    print(text, end="")
    if given.document:
        document(f"scripts/bench/processes.py {given.what}", text)


def threads(steps: int, rounds: int) -> str:
    """Measure ways to wait, and write the table."""
    found: dict[str, list[list[float]]] = {name: [[], []] for name in WAITS}
    kept = others("OMP_", "GOMP_")
    for _ in range(rounds):
        for busy in (0, 1):
            with busy_processes(busy):
                for name, variables in WAITS.items():
                    found[name][busy].append(train({**kept, **variables}, "vanilla", "translation", steps)[0])
    rows = [[name, *(f"{statistics.median(speeds):,.0f}" for speeds in both)] for name, both in found.items()]
    return to_table(["threads", "tokens a second", "next to a busy process"], rows)


def memory(steps: int, rounds: int) -> str:
    """Measure allocators, and write the table."""
    found: dict[str, list[tuple[float, float]]] = {}
    kept = {**SHORT_WAITS, **others("MALLOC_", "GLIBC_", "THP_")}
    for _ in range(rounds):
        for variant, task in VARIANTS.items():
            for name, variables in ALLOCATORS.items():
                costs = train({**kept, **variables}, variant, task, steps)
                found.setdefault(f"{variant}, {name}", []).append(costs)
    medians = {name: map(statistics.median, zip(*costs, strict=True)) for name, costs in found.items()}
    rows = [[name, f"{speed:,.0f}", f"{peak / 1e6:,.0f}"] for name, (speed, peak) in medians.items()]
    return to_table(["training, allocator", "tokens a second", "MB at most"], rows)


def others(*prefixes: str) -> dict[str, str]:
    """The variables of this process that do not begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def train(environment: Mapping[str, str], variant: str, task: str, steps: int) -> tuple[float, float]:
    """Train in a process of its own; tokens a second, and bytes at the peak."""
    command = [sys.executable, "-c", RUN, variant, task, str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    speed, peak = map(float, done.stdout.split()[-2:])
    return speed, peak


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Let some processes compute meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
