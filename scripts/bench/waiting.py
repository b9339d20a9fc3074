"""Speed of a small model's training by how threads wait for each other, alone and next to another busy process.

    python scripts/bench/waiting.py [--steps 60] [--rounds 3]
    python scripts/bench/waiting.py --document    # and put the table into docs/performance.md

One thread is the first row; the other rows have one for every core, and wait as OpenMP does by default, asleep, or as
`zoo` makes them (zoo/base/processes.py). All take turns. Give it an idle machine: with other work the default
can be ten times as slow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from documenting import described, document, to_table

from zoo.base.processes import SHORT_WAITS

POLICIES = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "OpenMP's default": {},
    "asleep": {"OMP_WAIT_POLICY": "passive"},
    "as zoo": SHORT_WAITS,
}
RUN = """
import sys
from zoo.training import train

result = train("vanilla", "translation", max_steps=int(sys.argv[1]), scored=False, progress=False)
print(result.report.train_tokens_per_second)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--document", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    found: dict[str, list[list[float]]] = {name: [[], []] for name in POLICIES}
    for _ in range(given.rounds):
        for busy in (0, 1):
            with busy_processes(busy):
                for name, variables in POLICIES.items():
                    found[name][busy].append(tokens_per_second(variables, given.steps))
    table = to_markdown(found, given.steps)
    print(table, end="")
    if given.document:
        document("scripts/bench/waiting.py", table)


def to_markdown(found: Mapping[str, Sequence[Sequence[float]]], steps: int) -> str:
    """Write medians as a table, with a line above that describes them."""
    rows = [[name, *(f"{statistics.median(speeds):,.0f}" for speeds in both)] for name, both in found.items()]
    table = to_table(["threads", "tokens a second", "next to a busy process"], rows)
    return f"{described()}; {steps} steps, the median of {len(found['as zoo'][0])}\n\n{table}"


def tokens_per_second(variables: Mapping[str, str], steps: int) -> float:
    """Train in a process with these variables of the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-c", RUN, str(steps)]
    done = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Let so many processes compute meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
