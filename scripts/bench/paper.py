"""Write the numbers of docs/paper.md from what is recorded: python scripts/bench/paper.py."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from deciding import RECORD, tables

from zoo.base.files import replace_part
from zoo.base.printed import table_in_markdown
from zoo.comparison.benchmarks.claims import calibrate, claims
from zoo.comparison.benchmarks.claims.page import RATE_HEADINGS, rate_row, tally
from zoo.comparison.benchmarks.definition import benchmarks
from zoo.comparison.benchmarks.rows import read_rows
from zoo.registry import VARIANTS, WEIGHTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/paper.md"
COMMAND = "python scripts/bench/paper.py"


def scope() -> str:
    """Contents of the zoo, in numbers."""
    variants = [
        VARIANTS.get(name) for name in VARIANTS.names() if VARIANTS.origin(name).module.startswith("zoo.variants")
    ]
    quirks = sum(len(variant.quirks) for variant in variants)
    measured = list(csv.DictReader((ROOT / "converters/measured.tsv").open(encoding="utf-8"), delimiter="\t"))
    found = benchmarks().values()
    rows = sum(len(read_rows(one.results)) for one in found)
    return (
        f"{len(variants)} variants, {quirks} switches for defects of originals, {len(WEIGHTS.names())} sets of weights "
        f"by name, {len({row['target'] for row in measured})} formats and model types that models were written to and "
        f"compared in ({len(measured)} pairs), {len(found)} benchmarks with {rows} recorded runs.\n"
    )


def exactness() -> str:
    """The table of docs/architecture.md."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| original \| float64 \| float32 \|\n(?:\|.*\n)+", text, flags=re.MULTILINE)
    return str(table)


def errors() -> str:
    """Error rates of the sequential verdict, by simulation."""
    table, *_ = tables(json.loads(RECORD.read_text(encoding="utf-8"))).split("\n\n")
    return table.rstrip() + "\n"


def trust() -> str:
    """The calibration, and what came out of papers' claims."""
    findings = claims()
    found = calibrate()
    rates = table_in_markdown(RATE_HEADINGS, [rate_row(found, condition) for condition in found.conditions])
    return f"{rates}\n\nOf {len(findings)} claims of papers, {tally(findings)}.\n"


PARTS = {"scope": scope, "exactness": exactness, "errors": errors, "trust": trust}


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        text = replace_part(text, f"{COMMAND}: {name}", part())
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
