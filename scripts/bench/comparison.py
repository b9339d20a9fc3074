"""How long a comparison of eight variants and three seeds takes, killed on the way and begun again.

    python scripts/bench/comparison.py [--out DIR] [--kill-after SECONDS ...] [--twice]

It runs `zoo compare` unattended, ends it by SIGKILL after each of the given times, gives the same command again until
it comes to its end, and then once more, which must run nothing. With --twice, the whole comparison is done once more in
another folder, without being killed, and must come to the same quality to the last bit.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VARIANTS = (
    "vanilla",
    "attention-is-all-you-need",
    "pre-norm",
    "post-norm",
    "sandwich-norm",
    "res-post-norm",
    "normformer",
    "rezero",
)
SEEDS = 3
LIMIT = 15 * 60
"""Seconds within which it is to be done."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/bench-comparison"))
    parser.add_argument("--task", default="translation")
    parser.add_argument("--budget", default="tokens=5e4")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kill-after", type=float, nargs="*", default=[45.0, 90.0])
    parser.add_argument("--twice", action="store_true")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    seconds = 0.0
    for limit in (*given.kill_after, None):
        took, status = compare(given, given.out / "first", limit)
        seconds += took
        print(f"{'killed' if limit is not None else 'ended'} after {took:,.1f} s with {status}", flush=True)
    first = quality(given.out / "first")
    took, _ = compare(given, given.out / "first", None)
    print(f"once more, with nothing to do: {took:,.1f} s")
    same = first == quality(given.out / "first")
    if given.twice:
        took, _ = compare(given, given.out / "second", None)
        again = quality(given.out / "second")
        same = same and again == first
        print(
            f"in another folder, not killed: {took:,.1f} s; quality {'the same bits' if again == first else 'DIFFERS'}"
        )
    whole = len(first) == len(VARIANTS) * SEEDS and all(run is not None for run in first.values())
    machine = platform.processor() or platform.machine()
    print(f"{len(first)} runs of {given.task}, {given.budget}, {given.jobs} at a time, on {machine}")
    print(f"{seconds / 60:.1f} minutes, {sum(run is None for run in first.values())} failed")
    return 0 if whole and same and seconds < LIMIT else 1


def compare(given: argparse.Namespace, folder: Path, limit: float | None) -> tuple[float, int]:
    """Give the command once, and kill it after `limit` seconds; the seconds that it ran, and its exit code."""
    command = [sys.executable, "-m", "zoo", "compare", *VARIANTS, "--task", given.task, "--budget", given.budget]
    command += ["--seeds", str(SEEDS), "--jobs", str(given.jobs), "--quiet", "-o", str(folder)]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            status = child.wait()
    return time.perf_counter() - began, status


def quality(folder: Path) -> dict[str, Any]:
    """Read what the runs came to, apart from time and memory, by variant and seed; None for those that failed."""
    found = {}
    for run in json.loads((folder / "results.json").read_text(encoding="utf-8"))["runs"]:
        report = run["report"]
        scores = report and {name: score["value"] for name, score in report["scores"].items()}
        losses = [(point.get("loss"), point.get("heldout_loss")) for point in run["curve"]]
        kept = [scores, report and report["heldout_loss"], report and report["train_loss"], losses, run["outputs"]]
        found[f"{run['name']}, seed {run['seed']}"] = None if run["error"] else kept
    return found


if __name__ == "__main__":
    sys.exit(main())
