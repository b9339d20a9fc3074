"""Compare the zoo with transformers' own classes, PyTorch's modules and plain loops, all with the same weights.

    python scripts/bench/speed/run.py                     # float32 on this machine's CPU
    python scripts/bench/speed/run.py -o scripts/bench/speed/threads-2.json --document    # recorded, as the page has it
    OMP_NUM_THREADS=1 python scripts/bench/speed/run.py -o scripts/bench/speed/threads-1.json --document
    python scripts/bench/speed/run.py -o scripts/bench/speed/avx2.json --document    # as on older processors, after
                                                          # export ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
                                                          # export ATEN_CPU_CAPABILITY=avx2
    python scripts/bench/speed/run.py -o scripts/bench/speed/threads-2.json --again "generation*"    # these rows again
    python scripts/bench/speed/run.py --preset originals  # next to the five documents that variants come from
    python scripts/bench/speed/run.py --preset cuda       # bfloat16, compiled, with memory and CUDA graphs
    python scripts/bench/speed/run.py --preset cuda --dry-run    # everything but the device, in a few seconds

One thread (OMP_NUM_THREADS=1) is timed by the processor's time, which other work on the machine leaves alone.
Ratios are medians over rounds in which all peers take turns; 1.00 is the fastest stock peer of the row, and above is
faster. "deviation" is how far a peer's result is from the first stock peer's, relative to the largest value. "of limit"
is the operations a second that it executes, as a share of what matrix products alone reach on the machine: what is
missing from 100 % is all that any other program with the same operations could gain. "same tokens" is the share of next
tokens that int8 weights leave as they are, of random weights, which make next tokens nearly ties.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

import torch
import transformers
from limits import bandwidth, peak, products
from measuring import Machine, Peer, clock_of, measure, name_of
from original_work import OriginalWork
from recording import begun, keep
from shapes import FULL, GPU, TINY
from tables import PAGE, recorded, to_markdown
from workloads import Work

from zoo.analysis.environment import device_name
from zoo.base.files import replace_part, write_file

PRESETS = ("cpu", "originals", "cuda")


def parse_arguments() -> argparse.Namespace:
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
    parser.add_argument("--again", nargs="+", default=[], help="recorded workloads to run again, and no others")
    parser.add_argument(
        "--dry-run", "--tiny", dest="tiny", action="store_true", help="tiny shapes, one round, on the CPU: does it run?"
    )
    parser.add_argument("-o", "--output", type=Path, help="a JSON file, to which workloads are added as measured")
    parser.add_argument("--document", action="store_true", help="put what is recorded into docs/performance.md")
    arguments = parser.parse_args()
    on_gpu = arguments.preset == "cuda"
    arguments.device = "cpu" if arguments.tiny else arguments.device or ("cuda" if on_gpu else "cpu")
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    arguments.compile |= on_gpu
    arguments.memory |= on_gpu
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("no CUDA device is available; --dry-run does everything else")
    return arguments


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def workloads_of(arguments: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
    on_gpu = arguments.preset == "cuda"
    scale = TINY if arguments.tiny else GPU if on_gpu else FULL
    if arguments.preset == "originals":
        yield from OriginalWork(scale, device, tiny=arguments.tiny).workloads()
        return
    dtype = getattr(torch, arguments.dtype)
    backend = None if not arguments.compile else "eager" if arguments.tiny else "inductor"
    work = Work(scale, device, dtype, backend)
    yield from work.workloads()
    if on_gpu:
        yield from work.graphs()


def main() -> None:
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
        "machine": device_name(device),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "dtype": arguments.dtype,
        "clock": name_of(clock_of(device)),
        "date": date.today().isoformat(),
        "limit": "",
        "bandwidth": f"{reading / 1e9:.1f} GB/s",
    }
    found = begun(arguments.output, about)
    for name, peers in workloads_of(arguments, device):
        if (arguments.again or name not in found["rows"]) and matches(name, arguments.again or arguments.only):
            torch.compiler.reset()  # models of one class would use up the number of times that it is compiled
            if not arguments.tiny:  # a tiny limit means nothing
                measured = max(measured, products(device, dtype))
            limit = stated or measured
            about["limit"] = f"{limit / 1e9:.0f} GFLOP/s (measured {measured / 1e9:.0f})"
            rows = measure(name, peers(), rounds, seconds, Machine(device, limit, reading, arguments.memory))
            print(to_markdown(rows, about), flush=True)
            found["rows"][name] = [asdict(row) for row in rows]
            found.setdefault("dates", {})[name] = about["date"]
            found.setdefault("about", about)
            keep(arguments.output, found)
    if arguments.document:
        page = PAGE.read_text(encoding="utf-8")
        write_file(PAGE, replace_part(page, "scripts/bench/speed/run.py", recorded()))


if __name__ == "__main__":
    main()
