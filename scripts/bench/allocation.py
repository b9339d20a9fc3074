"""Speed and memory of a training on the CPU by what the allocator does with freed memory.

    python scripts/bench/allocation.py [--steps 12] [--rounds 1]
    python scripts/bench/allocation.py --document    # and put the table into docs/performance.md

The sizes are those of the recipe `books`. Every row is a fresh process, and all take turns. Give it an idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping

from documenting import described, document, to_table

from zoo.base.processes import KEPT_MEMORY, SHORT_WAITS

VARIANTS = {"llama-style": "language-modeling", "gpt-bert-style": "masked-next-token"}
ALLOCATORS = {
    "glibc's default": {},
    "large pages": {"THP_MEM_ALLOC_ENABLE": "1"},
    "as zoo: memory kept": KEPT_MEMORY,
}
RUN = """
import sys
from zoo.training import load_recipe, train

variant, task, steps = sys.argv[1:]
texts = {"data": "en_pt+phrases", "columns": ["en"]}
options = {"per_device_train_batch_size": 32, "bf16": True, "scored": False, "max_steps": int(steps)}
sizes = load_recipe("books").model
report = train(variant, f"{task}:block_size=256", settings=sizes, progress=False, **texts, **options).report
print(report.train_tokens_per_second, report.peak_memory)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--document", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        for variant in VARIANTS:
            for name, variables in ALLOCATORS.items():
                found.setdefault((variant, name), []).append(measure(variant, variables, given.steps))
    rows = []
    for (variant, name), measured in found.items():
        speed, memory = (statistics.median(values) for values in zip(*measured, strict=True))
        rows.append([f"{variant}, {name}", f"{speed:,.0f}", f"{memory / 1e6:,.0f}"])
    table = to_table(["training, allocator", "tokens a second", "MB at most"], rows)
    table = f"{described()}; {given.steps} steps, the median of {given.rounds}\n\n{table}"
    print(table, end="")
    if given.document:
        document("scripts/bench/allocation.py", table)


def measure(variant: str, variables: Mapping[str, str], steps: int) -> tuple[float, float]:
    """Train in a process with these variables of the environment; give tokens a second and bytes at the peak."""
    prefixes = ("MALLOC_", "GLIBC_", "THP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    command = [sys.executable, "-c", RUN, variant, VARIANTS[variant], str(steps)]
    environment = {**SHORT_WAITS, **kept, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    speed, memory = map(float, done.stdout.split()[-2:])
    return speed, memory


if __name__ == "__main__":
    main()
