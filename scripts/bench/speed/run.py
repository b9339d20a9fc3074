"""Measure the zoo beside transformers' own classes, PyTorch's modules and plain loops, all with the same weights.

    python scripts/bench/speed/run.py                     # float32 on this machine's CPU
    python scripts/bench/speed/run.py --preset originals  # beside the five documents that variants come from
    python scripts/bench/speed/run.py --preset cuda       # bfloat16, compiled, with memory and CUDA graphs
    python scripts/bench/speed/run.py --preset cuda --dry-run    # everything but the device, in a few seconds

One thread (OMP_NUM_THREADS=1) is timed by the processor's time, which other work on the machine leaves alone.
Ratios are medians over rounds in which all peers take turns; 1.00 is the fastest stock peer of the row, and above is
faster. "deviation" is how far a peer's result is from the first stock peer's, relative to the largest value. "of limit"
is the operations a second that it executes, as a share of what matrix products alone reach on the machine: what is
missing from 100 % is all that any other program with the same operations could gain. "same tokens" is the share of next
tokens that int8 weights leave as they are, of random weights, whose next tokens are nearly ties.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import date
from pathlib import Path

import torch
import transformers
from accelerated import AcceleratedWork
from limits import bandwidth, peak, products
from measuring import Machine, Peer, Row, clock_of, measure, name_of
from original_work import OriginalWork
from shapes import FULL, GPU, TINY
from workloads import Work

from zoo.environment import device_name

PRESETS = ("cpu", "originals", "cuda")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cpu", choices=PRESETS)
    parser.add_argument("--device", help="by default the preset's")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="by default the preset's")
    parser.add_argument("--compile", action="store_true", help="torch.compile every peer's model")
    parser.add_argument("--peak", type=float, help="TFLOP/s that count as 100 %%, by default the device's or measured")
    parser.add_argument("--memory", action="store_true", help="measure the memory of a run, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn lasts at least")
    parser.add_argument("--only", nargs="+", default=["*"], help="workloads to run, with wildcards")
    parser.add_argument(
        "--dry-run", "--tiny", dest="tiny", action="store_true", help="tiny shapes, one round, on the CPU: does it run?"
    )
    parser.add_argument("-o", "--output", type=Path, help="write FILE.json and FILE.md as well")
    arguments = parser.parse_args()
    on_gpu = arguments.preset == "cuda"
    arguments.device = "cpu" if arguments.tiny else arguments.device or ("cuda" if on_gpu else "cpu")
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    arguments.compile |= on_gpu
    arguments.memory |= on_gpu
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --dry-run does everything else")
    return arguments


COLUMNS: dict[str, Callable[[Row], str]] = {
    "ms": lambda row: f"{row.milliseconds:.1f}",
    "ratio": lambda row: f"{row.ratio:.2f}",
    "spread": lambda row: f"±{row.spread:.2f}",
    "deviation": lambda row: "" if row.deviation is None else f"{row.deviation:.0e}",
    "same tokens": lambda row: "" if row.agreement is None else f"{row.agreement:.1%}",
    "GFLOP": lambda row: "" if row.gflop is None else f"{row.gflop:.3g}",
    "of limit": lambda row: "" if row.of_limit is None else f"{row.of_limit:.0%}",
    "of bandwidth": lambda row: "" if row.of_bandwidth is None else f"{row.of_bandwidth:.0%}",
    "MB": lambda row: "" if row.megabytes is None else f"{row.megabytes:.1f}",
}
"""What a table shows of a row; columns without any entry are left out."""


def to_markdown(rows: list[Row], about: dict[str, str]) -> str:
    """A table for each workload, under a line that names machine and versions."""
    lines = [", ".join(f"{key} {value}" for key, value in about.items()), ""]
    for workload in dict.fromkeys(row.workload for row in rows):
        chosen = [row for row in rows if row.workload == workload]
        shown = {name: show for name, show in COLUMNS.items() if any(show(row) for row in chosen)}
        lines += [f"**{workload}**", "", f"| peer | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
        lines += [f"| {row.peer} | {' | '.join(show(row) for show in shown.values())} |" for row in chosen]
        lines.append("")
    return "\n".join(lines)


def workloads_of(arguments: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
    """The workloads of a preset, by their names."""
    on_gpu = arguments.preset == "cuda"
    scale = TINY if arguments.tiny else GPU if on_gpu else FULL
    if arguments.preset == "originals":
        yield from OriginalWork(scale, device, tiny=arguments.tiny).workloads()
        return
    dtype = getattr(torch, arguments.dtype)
    backend = None if not arguments.compile else "eager" if arguments.tiny else "inductor"
    yield from Work(scale, device, dtype, backend).workloads()
    if on_gpu:
        yield from AcceleratedWork(scale, device, dtype, tiny=arguments.tiny).workloads()


def main() -> None:
    """Run every workload and show the tables."""
    arguments = parse_arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    device = torch.device(arguments.device)
    dtype = getattr(torch, arguments.dtype)
    stated = arguments.peak * 1e12 if arguments.peak else peak(device, arguments.dtype)
    measured, reading = products(device, dtype), bandwidth(device)
    rounds, seconds = (1, 0.0) if arguments.tiny else (arguments.rounds, arguments.seconds)
    about = {
        "machine": f"{device_name(device)}, {torch.get_num_threads()} threads of {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": arguments.dtype,
        "clock": name_of(clock_of(device)),
        "date": date.today().isoformat(),
        "limit": "",
        "bandwidth": f"{reading / 1e9:.1f} GB/s",
    }
    rows: list[Row] = []
    for name, peers in workloads_of(arguments, device):
        if any(fnmatch.fnmatch(name, pattern) for pattern in arguments.only):
            torch.compiler.reset()  # models of one class would use up the number of times that it is compiled
            measured = max(measured, products(device, dtype))
            limit = stated or measured
            about["limit"] = f"{limit / 1e9:.0f} GFLOP/s (measured {measured / 1e9:.0f})"
            rows += measure(name, peers(), rounds, seconds, Machine(device, limit, reading, arguments.memory))
            print(to_markdown([row for row in rows if row.workload == name], about), flush=True)
    if arguments.output:
        arguments.output.with_suffix(".json").write_text(
            json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
        )
        arguments.output.with_suffix(".md").write_text(to_markdown(rows, about))


if __name__ == "__main__":
    main()
