"""Export a small model of every variant to every target, and write down how far each export is from its original.

    python scripts/bench/exports.py                                       # everything, which takes hours
    python scripts/bench/exports.py --only "gpt2*" --targets openvino     # some lines; others stay as they are
    python scripts/bench/exports.py --missing                             # lines that are not there yet

Differences are in float32, and stand in docs/converters.md; an export that differs by more than rounding is an error.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from datetime import date
from pathlib import Path

from zoo.converters import TARGETS, ExportOptions
from zoo.converters.exporting import export_as
from zoo.converters.matrix import MEASURED, matrix_row, other_targets, small_model
from zoo.converters.planning import plan_export
from zoo.registry import VARIANTS, list_variants

COLUMNS = ("variant", "task", "target", "difference", "measured_on")

CLASSES = "transformers"
"""Name of the first exact class of transformers among the targets."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = [CLASSES, *other_targets()]
    parser.add_argument("--only", nargs="+", default=["*"], help="variants, with wildcards")
    parser.add_argument("--targets", nargs="+", default=choices, choices=choices)
    parser.add_argument("--missing", action="store_true", help="leave out what has a line")
    parser.add_argument("-o", "--output", type=Path, default=MEASURED)
    return parser.parse_args()


def measure(name: str, task: str, target: str) -> tuple[str, float] | None:
    """Export a small model; the target and the difference, None where the model cannot go there."""
    row = matrix_row(name, task)
    if row.target is None if target == CLASSES else row.engines[target]:
        return None
    model = small_model(name, task)
    plan = plan_export(model)[0] if target == CLASSES else TARGETS.get(target).plan(model)
    with tempfile.TemporaryDirectory() as folder:
        report = export_as(plan, model, Path(folder), ExportOptions(fresh_process=False))
    return None if report.difference is None else (plan.target, report.difference.float32)


def main() -> None:
    arguments = parse_arguments()
    with arguments.output.open(encoding="utf-8", newline="") as file:
        rows = {(row["variant"], row["task"], row["target"]): row for row in csv.DictReader(file, delimiter="\t")}
    for name in list_variants(arguments.only):
        for task in VARIANTS.get(name).tasks:
            known = {found for variant, head, found in rows if (variant, head) == (name, task)}
            for target in arguments.targets:
                if arguments.missing and (known - set(TARGETS) if target == CLASSES else target in known):
                    continue
                found = measure(name, task, target)
                if found is None:
                    continue
                key = (name, task, found[0])
                values = (*key, f"{found[1]:.0e}", date.today().isoformat())
                rows[key] = dict(zip(COLUMNS, values, strict=True))
                print(*values, sep="\t", flush=True)
                # After each, as an interrupted command shall not lose what took hours.
                with arguments.output.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows[key] for key in sorted(rows))


if __name__ == "__main__":
    main()
