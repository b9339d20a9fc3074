"""Score weights by name on minimal pairs of English, and write the tables of docs/english.md.

    python scripts/bench/english.py llama-style.books    # scores them, and keeps the numbers next to this script
    python scripts/bench/english.py gpt-bert-style.books:log-probability    # by a method that is not the model's first
    python scripts/bench/english.py                      # writes the tables of what is kept

BLiMP is the corpus of that name: `zoo data get blimp`.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from zoo.base.folders import read_result
from zoo.base.processes import prepare_process

if __name__ == "__main__":
    prepare_process()  # as the verbs do, before torch is imported

from documenting import to_table

from zoo.base.files import replace_part, write_file
from zoo.building.weights import locate_weights
from zoo.comparison.benchmarks import find_benchmark, read_rows
from zoo.comparison.benchmarks.across import read_across
from zoo.comparison.benchmarks.page import in_markdown
from zoo.registry import find_weights
from zoo.training.suites import evaluate_suite

KEPT = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs/english.md"
SUITE = "blimp"


def kept() -> dict[str, Any]:
    """Numbers of all weights, by `NAME` or `NAME:METHOD`."""
    return dict(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.is_file() else {}


def score(given: str) -> None:
    """Score weights by `NAME` or `NAME:METHOD`, and keep the numbers."""
    name, _, method = given.partition(":")
    began = time.process_time()
    found = evaluate_suite(name, SUITE, method=method or None).to_dict()
    made = {"seconds": round(time.process_time() - began), "date": str(date.today()), **found}
    write_file(KEPT, json.dumps({**kept(), given: made}, indent=1) + "\n")


def models() -> str:
    """Write a row for each model: its size, what training it took, held-out scores and accuracy."""
    rows = []
    for given, found in kept().items():
        name = given.partition(":")[0]
        weights, (low, high) = find_weights(name), found["overall"]["interval"]
        scores = [str(weights.scores.get(key, "")) for key in ("loss", "bits_per_byte")]
        right = f"{found['overall']['value']:.1f} ({low:.1f} to {high:.1f})"
        report = read_result(locate_weights(weights))["report"]
        hours, speed = f"{report['train_seconds'] / 3600:.1f}", f"{report['train_tokens_per_second']:,.0f}"
        size = f"{weights.num_parameters:,}"
        made = (size, f"{report['train_tokens']:,}", hours, speed, *scores)
        rows.append([name, *made, right, found["method"].replace("-", " "), f"{found['seconds']} s"])
    headings = ("parameters", "tokens", "hours", "tokens a second", "loss", "bits per byte", "BLiMP", "by", "scored in")
    return to_table(("model", *headings), rows)


def phenomena() -> str:
    """Write a row for each phenomenon of grammar."""
    found = kept()
    names = sorted({name for one in found.values() for name in one["phenomenon"]})
    rows = [
        [name.replace("_", " "), *(f"{one['phenomenon'][name]['value']:.1f}" for one in found.values())]
        for name in names
    ]
    return to_table(("phenomenon", *found), rows)


def decoders() -> str:
    """Write a row for each variant of the benchmark `english`, and the correlation of its two scores."""
    benchmark = find_benchmark("english")
    reading = read_across(benchmark, read_rows(benchmark.results))
    assert reading is not None
    return f"{in_markdown(reading.headings, reading.rows)}\n\n{reading.summary}\n"


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for part, table in (("models", models()), ("phenomena", phenomena()), ("decoders", decoders())):
        text = replace_part(text, f"python scripts/bench/english.py: {part}", table)
    return text


if __name__ == "__main__":
    for given in sys.argv[1:]:
        score(given)
    write_file(PAGE, page())
    print(f"Wrote {PAGE}")
