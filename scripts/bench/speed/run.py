"""Measure the zoo beside transformers' own classes, PyTorch's modules and plain loops, all with the same weights.

    python scripts/bench/speed/run.py                     # float32 on this machine's CPU
    python scripts/bench/speed/run.py --device cuda --dtype bfloat16 --compile
    python scripts/bench/speed/run.py --tiny              # a dry run of everything in a few seconds

Ratios are medians over rounds in which all peers take turns; 1.00 is the fastest stock peer of the row, and above is
faster. "deviation" is how far a peer's result is from the first stock peer's, relative to the largest value.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
from dataclasses import asdict
from datetime import date
from pathlib import Path

import torch
import transformers
from measuring import Row, measure
from shapes import FULL, TINY
from workloads import Work


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--compile", action="store_true", help="torch.compile every peer's model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn lasts at least")
    parser.add_argument("--only", default="*", help="workloads to run, with wildcards")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and one round: does everything run?")
    parser.add_argument("-o", "--output", type=Path, help="write FILE.json and FILE.md as well")
    return parser.parse_args()


def to_markdown(rows: list[Row], about: dict[str, str]) -> str:
    """A table for each workload, under a line that names machine and versions."""
    lines = [", ".join(f"{key} {value}" for key, value in about.items()), ""]
    for workload in dict.fromkeys(row.workload for row in rows):
        lines += [f"**{workload}**", "", "| peer | ms | ratio | spread | deviation |", "|---|---:|---:|---:|---:|"]
        for row in rows:
            if row.workload == workload:
                apart = "" if row.deviation is None else f"{row.deviation:.0e}"
                lines.append(f"| {row.peer} | {row.milliseconds:.1f} | {row.ratio:.2f} | ±{row.spread:.2f} | {apart} |")
        lines.append("")
    return "\n".join(lines)


def machine(device: torch.device) -> str:
    """The processor's or the accelerator's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


def main() -> None:
    """Run every workload and show the tables."""
    arguments = parse_arguments()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    device = torch.device(arguments.device)
    work = Work(TINY if arguments.tiny else FULL, device, getattr(torch, arguments.dtype), arguments.compile)
    rounds, seconds = (1, 0.0) if arguments.tiny else (arguments.rounds, arguments.seconds)
    about = {
        "machine": f"{machine(device)}, {torch.get_num_threads()} threads of {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": arguments.dtype,
        "date": date.today().isoformat(),
    }
    rows: list[Row] = []
    for name, peers in work.workloads():
        if fnmatch.fnmatch(name, arguments.only):
            rows += measure(name, peers(), rounds, seconds, device)
            print(to_markdown([row for row in rows if row.workload == name], about), flush=True)
    if arguments.output:
        arguments.output.with_suffix(".json").write_text(
            json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
        )
        arguments.output.with_suffix(".md").write_text(to_markdown(rows, about))


if __name__ == "__main__":
    main()
