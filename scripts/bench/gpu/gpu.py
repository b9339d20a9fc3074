"""Everything that only a GPU can tell, by one command, in pieces of less than ten minutes each.

    python scripts/bench/gpu/gpu.py --data tinyshakespeare.txt -o gpu            # again, until nothing is left
    python scripts/bench/gpu/gpu.py --dry-run -o gpu                             # tiny, on the CPU: does it run?

The suite of every variant, fidelity to transformers' classes, nanoGPT's recipe for a GPU, speed and memory of peers
(utilisation, CUDA graphs, back ends). Each piece's results are in FILE.json as soon as it is done, so that an
interrupted run goes on; FILE.md is the part of docs/performance.md that is about GPUs, and --document puts it there.
The exit status is 75 while pieces are left.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts/bench/speed"))

from pieces import Settings, pieces  # noqa: E402 - next to this file, and it needs the folder above
from recording import begun, keep  # noqa: E402
from report import to_markdown  # noqa: E402

from zoo.analysis.environment import device_name  # noqa: E402
from zoo.base.files import replace_part, write_file  # noqa: E402

LEFT = 75
"""Exit status of a run that is to be started again (EX_TEMPFAIL)."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--data", type=Path, help="Tiny Shakespeare, for nanoGPT's recipe, which is left out without it"
    )
    parser.add_argument("--minutes", type=float, default=9, help="begin no piece after so many")
    parser.add_argument("--only", nargs="+", default=["*"], help="pieces to run, with wildcards")
    parser.add_argument("--list", action="store_true", help="name the pieces, and do nothing")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--document", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu"), help="FILE.json and FILE.md")
    arguments = parser.parse_args()
    if arguments.dry_run:
        arguments.device = "cpu"
    elif not torch.cuda.is_available():
        parser.error("no CUDA device is available; --dry-run does everything else")
    if arguments.document and arguments.dry_run:
        parser.error("a dry run measures nothing that could be documented")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = torch.device(arguments.device)
    about = {
        "device": device_name(device),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sizes": "tiny" if arguments.dry_run else "full",
        "date": date.today().isoformat(),
    }
    file = arguments.output.with_suffix(".json")
    found = begun(file, about, "pieces")
    settings = Settings(device, tiny=arguments.dry_run, data=arguments.data, folder=arguments.output.absolute().parent)
    todo = [piece for piece in pieces(settings, arguments.only) if piece.name not in found["pieces"]]
    if arguments.list:
        print("\n".join(piece.name for piece in todo))
        return 0
    until = time.monotonic() + 60 * arguments.minutes
    for number, piece in enumerate(todo):
        if time.monotonic() > until:
            print(f"{len(todo) - number} pieces are left; the same command goes on")
            return LEFT
        print(f"{piece.name} ...", flush=True)
        rows = piece.run()
        if rows is None:
            print(f"{piece.name} is not done; the same command goes on")
            return LEFT
        found["pieces"][piece.name] = {"kind": piece.kind, "rows": rows}
        keep(file, found)
        write_file(file.with_suffix(".md"), to_markdown(found))
    if arguments.document:
        page = ROOT / "docs/performance.md"
        write_file(page, replace_part(page.read_text(encoding="utf-8"), "scripts/bench/gpu", to_markdown(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
