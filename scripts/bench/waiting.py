"""What a small model's training costs by how threads wait for each other, alone and beside another busy process.

    python scripts/bench/waiting.py [--steps 60] [--rounds 3]
    python scripts/bench/waiting.py --document    # and put the table into docs/performance.md

One thread is the first row; the other rows have one for every core, and wait as OpenMP does by default, asleep, or as
`zoo` makes them (zoo/waiting.py). All take turns. Give it an idle machine: with other work the default can be ten times
as slow.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import torch

from zoo.environment import device_name
from zoo.files import write_file
from zoo.waiting import SHORTLY

PAGE = Path(__file__).parents[2] / "docs/performance.md"
PART = re.compile(r"(<!-- scripts/bench/waiting.py -->\n).*?(<!-- end -->)", re.DOTALL)
POLICIES = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "OpenMP's default": {},
    "asleep": {"OMP_WAIT_POLICY": "passive"},
    "as zoo": SHORTLY,
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
        page = PAGE.read_text(encoding="utf-8")
        write_file(PAGE, PART.sub(lambda part: part[1] + table + part[2], page))


def to_markdown(found: Mapping[str, Sequence[Sequence[float]]], steps: int) -> str:
    """Write medians as a table, under a line that says of what."""
    about = f"{device_name(torch.device('cpu'))}, {os.cpu_count()} cores, torch {torch.__version__}, {date.today()}"
    lines = [f"{about}; {steps} steps, the median of {len(found['as zoo'][0])}", ""]
    lines += ["| threads | tokens a second | beside a busy process |", "|---|---:|---:|"]
    for name, (alone, beside) in found.items():
        lines.append(f"| {name} | {statistics.median(alone):,.0f} | {statistics.median(beside):,.0f} |")
    return "\n".join(lines) + "\n"


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
