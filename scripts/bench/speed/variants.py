"""Training steps of every variant and of transformers' own class with the same weights, in alternation.

    python scripts/bench/speed/variants.py -o scripts/bench/speed/variants.json    # what it lacks; goes on
    python scripts/bench/speed/variants.py -o scripts/bench/speed/variants.json --document    # and onto the page
    python scripts/bench/speed/variants.py --quick --only "albert*"  # tiny shapes, one round: does it run?

A row is a variant that goes to a class exactly, for its first task, without dropout. "ratio" is the class's time over
the zoo's, the median over rounds in which both take turns: above 1 the zoo is faster. "deviation" is how far logits
differ. With one thread, time is the processor's, into which other programs on the machine hardly enter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers
from measuring import OURS, STOCK, Machine, Peer, Row, clock_of, measure, name_of
from recording import begun, keep
from torch import Tensor

import zoo
from zoo.analysis.environment import device_name
from zoo.base.files import replace_part, write_file
from zoo.converters import plan_export
from zoo.converters.native import NATIVE
from zoo.converters.native.writing import write_native
from zoo.registry import VARIANTS, list_variants

PAGE = Path(__file__).parents[3] / "docs/performance.md"
RECORDING = Path(__file__).with_suffix(".json")
DROPOUTS: dict[str, Any] = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
FULL = {"preset": "small", "vocab_size": 8192, "batch": 8, "tokens": 128}
QUICK = {"preset": "tiny", "vocab_size": 40, "batch": 2, "tokens": 12}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], help="variants, with wildcards")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn lasts at least")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, one round")
    parser.add_argument("--document", action="store_true", help="put what is recorded into docs/performance.md")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file, to which rows are added as measured")
    arguments = parser.parse_args()
    if arguments.document and arguments.quick:
        parser.error("--quick measures nothing that could be documented")
    return arguments


def twins(name: str, shape: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The class of transformers that expresses a variant, and both with the same weights; None without a class."""
    task = VARIANTS.get(name).default_task
    ours = zoo.build(f"{name}@{shape['preset']}", task, vocab_size=shape["vocab_size"], seed=0, **DROPOUTS)
    plan = next((plan for plan in plan_export(ours) if plan.exact and plan.target in NATIVE), None)
    if plan is None or plan.route is None or getattr(ours, "mtp", None):  # which no class trains
        return None
    native = NATIVE.get(plan.target)
    with tempfile.TemporaryDirectory() as folder:
        write_native(ours, Path(folder), native, plan.route)
        theirs = getattr(transformers, native.classes[task]).from_pretrained(folder)
    return type(theirs).__name__, ours.train(), theirs.train()


def peer(name: str, kind: str, model: Any, batch: dict[str, Tensor]) -> Peer:
    """A training step without its optimiser, and the logits that it computes."""

    def step() -> None:
        model.zero_grad()
        model(**batch).loss.backward()

    return Peer(name, step, kind, lambda: model(**batch).logits, flops=0)


def measured(name: str, shape: dict[str, Any], rounds: int, seconds: float) -> list[Row]:
    """Measure a variant and its class; the class's row and the zoo's, nothing without a class."""
    found = twins(name, shape)
    if found is None:
        return []
    theirs_name, ours, theirs = found
    generator = torch.Generator().manual_seed(0)
    ids, labels = torch.randint(4, shape["vocab_size"], (2, shape["batch"], shape["tokens"]), generator=generator)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    peers = [peer(theirs_name, STOCK, theirs, batch), peer("zoo", OURS, ours, batch)]
    return measure(name, peers, rounds, seconds, Machine(torch.device("cpu"), 1.0, 1.0))


def to_markdown(found: dict[str, Any]) -> str:
    """Write the table, with a line above on how it was measured."""
    about = ", ".join(f"{name} {value}" for name, value in found["about"].items())
    lines = [about, "", "| variant | class | its ms | zoo's ms | ratio | spread | deviation |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for name, (theirs, ours) in sorted(found["rows"].items()):
        times = f"{theirs['milliseconds']:.1f} | {ours['milliseconds']:.1f}"
        ratio = f"{ours['ratio']:.2f} | ±{ours['spread']:.2f} | {ours['deviation']:.0e}"
        lines.append(f"| {name} | {theirs['peer']} | {times} | {ratio} |")
    return "\n".join(lines) + "\n"


def recorded() -> str:
    return to_markdown(json.loads(RECORDING.read_text(encoding="utf-8")))


def main() -> None:
    arguments = parse_arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    shape = QUICK if arguments.quick else FULL
    rounds, seconds = (1, 0.0) if arguments.quick else (arguments.rounds, arguments.seconds)
    about = {
        "machine": device_name(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "clock": name_of(clock_of(torch.device("cpu"))),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **shape,
        "rounds": rounds,
        "date": date.today().isoformat(),
    }
    found = begun(arguments.output, about)
    for name in list_variants(arguments.only):
        if name in found["rows"] or not (rows := measured(name, shape, rounds, seconds)):
            continue
        found["rows"][name] = [asdict(row) for row in rows]
        print(to_markdown({"about": about, "rows": {name: found["rows"][name]}}).splitlines()[-1], flush=True)
        keep(arguments.output, found)
    if arguments.document:
        page = PAGE.read_text(encoding="utf-8")
        write_file(PAGE, replace_part(page, "scripts/bench/speed/variants.py", recorded()))


if __name__ == "__main__":
    main()
