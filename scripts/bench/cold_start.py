"""How long `import zoo` and `zoo --help` take in a fresh process.

Runs each command many times, in turns, and shows the medians: in all, and above what Python itself needs to start.

    python scripts/bench/cold_start.py --verbs --repeats 5
    python scripts/bench/cold_start.py --verbs --repeats 5 --document    # and put the table into docs/performance.md

run verbs that need a model instead, with the imports that every model of transformers needs, and show seconds of the
processor, which depend less on other processes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from documenting import described, document, to_table

PYTHON = "python -c pass"
LIMITS = {"import zoo": 0.150, "zoo --help": 0.500}
"""The most seconds that each command may take: for the import above Python's own start, for the command line in all."""

HEAVY = ("torch", "transformers", "huggingface_hub")
"""Modules that neither command may import."""


FLOOR = "import transformers.modeling_utils, transformers.generation.utils"
"""Imports that every verb with a model needs: the row that theirs are compared with."""

IMPORTS = ("import torch", FLOOR, "import zoo.models")
"""Imports of such verbs, each with all before it."""


def launcher() -> list[str]:
    """How the zoo is run from the command line."""
    zoo = Path(sys.executable).with_name("zoo")
    return [str(zoo)] if zoo.exists() else [sys.executable, "-c", "from zoo.cli.main import main; main()"]


def commands() -> dict[str, list[str]]:
    return {
        PYTHON: [sys.executable, "-c", "pass"],
        "import zoo": [sys.executable, "-c", "import zoo"],
        "zoo --help": [*launcher(), "--help"],
    }


def seconds(command: list[str]) -> float:
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
    """Measurements of a command, in seconds."""

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


def in_turns(
    commands: dict[str, list[str]], took: Callable[[list[str]], float], repeats: int
) -> dict[str, list[float]]:
    """Measure every command `repeats` times, in turns."""
    runs = [{name: took(command) for name, command in commands.items()} for _ in range(repeats + 1)]
    return {name: [run[name] for run in runs[1:]] for name in commands}  # the first run fills caches


def measure(repeats: int) -> list[Row]:
    medians = {name: statistics.median(times) for name, times in in_turns(commands(), seconds, repeats).items()}
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


def verbs(folder: Path) -> dict[str, list[str]]:
    """Verbs that need a model, and what they import: commands, by the name to show."""
    # As the command line imports it: without looking for garbage among what is new, at the end neither.
    quietly = "import atexit, gc; gc.disable(); atexit.register(gc.freeze); "
    empty = f"import os; os.environ['XDG_CACHE_HOME'] = f'{folder}/{{os.getpid()}}'; import zoo.__main__"
    return {
        **{name: [sys.executable, "-c", quietly + name] for name in IMPORTS},
        "zoo params": [sys.executable, "-c", empty, "params", "vanilla"],
        "zoo params, again": [*launcher(), "params", "vanilla"],
        "zoo build": [*launcher(), "build", "vanilla@tiny", "--force", "-o", str(folder / "built")],
        "zoo generate": [*launcher(), "generate", "vanilla.en-pt", "The water is cold."],
    }


def processor_seconds(command: list[str]) -> float:
    """The time of the processor that one run takes, in itself and for the system."""
    # With bytecode kept, as users have it: without, each run compiles the zoo again, which takes another 0.3 s.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_verbs(repeats: int) -> list[dict[str, Any]]:
    """Measure verbs that need a model, in turns: seconds of the processor, and how many are above those of `FLOOR`."""
    with tempfile.TemporaryDirectory() as folder:
        times = in_turns(verbs(Path(folder)), processor_seconds, repeats)
    floor = min(times[FLOOR])
    return [
        {
            "command": name,
            "least": round(min(took), 3),
            "median": round(statistics.median(took), 3),
            "above": round(min(took) - floor, 3),
        }
        for name, took in times.items()
    ]


def to_markdown(found: list[dict[str, Any]], repeats: int) -> str:
    """Write the measurements of verbs as a table, with a line above that describes them."""
    numbers = [[f"{row['least']:.2f}", f"{row['median']:.2f}", f"{max(0, row['above']):.2f}"] for row in found]
    rows = [[f"`{row['command']}`", *of_row] for row, of_row in zip(found, numbers, strict=True)]
    table = to_table(["seconds of the processor", "least", "median", "least, above transformers' imports"], rows)
    return f"{described()}; {repeats} runs of each, in turns\n\n{table}"


def main() -> int:
    """Run from the command line; returns 1 where a limit is exceeded or something heavy imported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="runs of each command (default: %(default)s)")
    parser.add_argument("--verbs", action="store_true", help="run verbs that need a model")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--document", action="store_true", help="put the table of verbs into docs/performance.md")
    arguments = parser.parse_args()
    if arguments.document and not arguments.verbs:
        parser.error("--document puts the table of verbs into the page: give --verbs as well")
    about = {"python": platform.python_version(), "repeats": arguments.repeats}
    if arguments.verbs:
        found = measure_verbs(arguments.repeats)
        if arguments.json:
            print(json.dumps({**about, "rows": found}, indent=2))
        else:
            print(table := to_markdown(found, arguments.repeats), end="")
            if arguments.document:
                document("scripts/bench/cold_start.py", table)
        return 0
    rows = measure(arguments.repeats)
    if arguments.json:
        print(json.dumps({**about, "rows": [{**asdict(row), "passed": row.passed} for row in rows]}, indent=2))
    else:
        print(f"{'command':16} {'median':>10} {'above python':>14} {'limit':>8}  heavy imports")
        print(*rows, sep="\n")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
