"""How long `import zoo` and `zoo --help` take in a fresh process.

Runs each command many times, in turns, and shows the medians: in all, and above what Python itself needs to start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PYTHON = "python -c pass"
LIMITS = {"import zoo": 0.150, "zoo --help": 0.500}
"""The most seconds that each command may take: for the import above Python's own start, for the command line in all."""

HEAVY = ("torch", "transformers", "huggingface_hub")
"""Modules that neither command may import."""


def commands() -> dict[str, list[str]]:
    """What to run, by the name to show."""
    zoo = Path(sys.executable).with_name("zoo")
    launcher = [str(zoo)] if zoo.exists() else [sys.executable, "-c", "from zoo.cli.main import main; main()"]
    return {
        PYTHON: [sys.executable, "-c", "pass"],
        "import zoo": [sys.executable, "-c", "import zoo"],
        "zoo --help": [*launcher, "--help"],
    }


def seconds(command: list[str]) -> float:
    """The time one run takes."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def heavy_imports(command: list[str]) -> list[str]:
    """Which of the heavy modules a command imports."""
    run = subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    return [module for module in HEAVY if module in imported]


@dataclass(frozen=True)
class Row:
    """What was measured of a command, in seconds."""

    command: str
    median: float
    above_python: float
    limit: float | None
    heavy_imports: list[str]

    @property
    def passed(self) -> bool:
        """Whether it is as fast as it must be, and imports nothing heavy."""
        counted = self.above_python if self.command == "import zoo" else self.median
        return not self.heavy_imports and (self.limit is None or counted <= self.limit)

    def __str__(self) -> str:
        limit = f"{self.limit * 1000:.0f} ms" if self.limit else "-"
        heavy = ", ".join(self.heavy_imports) or "none"
        return f"{self.command:16} {self.median * 1000:7.0f} ms {self.above_python * 1000:11.0f} ms {limit:>8}  {heavy}"


def measure(repeats: int) -> list[Row]:
    """Measure every command `repeats` times, in turns."""
    runs: dict[str, list[float]] = {name: [] for name in commands()}
    for _ in range(repeats + 1):
        for name, command in commands().items():
            runs[name].append(seconds(command))
    medians = {name: statistics.median(times[1:]) for name, times in runs.items()}  # the first run fills caches
    return [
        Row(
            command=name,
            median=round(median, 4),
            above_python=round(median - medians[PYTHON], 4),
            limit=LIMITS.get(name),
            heavy_imports=heavy_imports(commands()[name]),
        )
        for name, median in medians.items()
    ]


def main() -> int:
    """Run from the command line; returns 1 where a limit is exceeded or something heavy imported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="runs of each command (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    rows = measure(arguments.repeats)
    if arguments.json:
        report = [{**asdict(row), "passed": row.passed} for row in rows]
        print(json.dumps({"python": platform.python_version(), "repeats": arguments.repeats, "rows": report}, indent=2))
    else:
        print(f"{'command':16} {'median':>10} {'above python':>14} {'limit':>8}  heavy imports")
        print(*rows, sep="\n")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
