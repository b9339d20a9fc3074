"""Write docs/results.md from what `zoo bench run NAME --record` has recorded.

The rows of the weights that ship are written too, and from these the table of README.md.

    python scripts/bench/results.py
"""

from __future__ import annotations

import re
from pathlib import Path

from zoo.benchmarks import Benchmark, benchmarks, judge, read_rows
from zoo.benchmarks.across import read_across
from zoo.benchmarks.page import anchors, in_markdown, made_on, markdown_table, told
from zoo.benchmarks.rows import write_rows
from zoo.benchmarks.weights import RESULTS, rows_of_weights
from zoo.files import write_file
from zoo.weights.tables import in_words, markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
FRONT = ROOT / "README.md"

TRANSLATION = "small-translation"
"""The recipe of the weights that the front table shows."""

TABLE = re.compile(r"(?<=<!-- python scripts/bench/results.py -->\n)(.*?)(?=<!-- end -->)", flags=re.DOTALL)
"""Where the front table stands in README.md."""

INTRODUCTION = """# Results

Variants, measured: what `zoo bench run NAME --record` has written, put into tables by
`python scripts/bench/results.py`. A row is a variant: the mean over its seeds and the sample standard deviation, the
difference from the baseline (the first variant of the benchmark), and the verdict of a test that is paired by seed and
corrected for the number of variants ([how](comparing.md#what-may-be-said)). *Within noise* means that these runs cannot
tell the two apart, not that they are the same.

`zoo bench show NAME` prints a table, `zoo bench run NAME VARIANT` repeats a row or adds one of your own, and
`zoo bench verify NAME` repeats some rows and says whether they come out again. Quality does not depend on what else a
machine does; how fast a run was does, so no speeds are shown, and the CSV files say how busy the machine was.

What the [weights that ship](weights.md) scored has rows of its own, in
[weights.csv](../zoo/benchmarks/results/weights.csv), written from the very files that their cards read.
"""


def section(benchmark: Benchmark) -> str:
    """Write what a benchmark says.

    Args:
        benchmark: The benchmark.

    Returns:
        Markdown.
    """
    rows = read_rows(benchmark.results)
    judged = {condition: judge(benchmark, rows, condition) for condition in benchmark.conditions}
    parts = [f"## {benchmark.name}", f"{benchmark.summary} {benchmark.source}".strip()]
    if not rows:
        return "\n\n".join([*parts, "Nothing is recorded yet."])
    parts.append(made_on(rows))
    for condition, verdicts in judged.items():
        if verdicts.standings:
            parts += [f"### {condition}"] if condition else []
            parts += [markdown_table(verdicts), told(verdicts)]
    if reading := read_across(benchmark, rows):
        parts += [f"### All conditions\n\n{reading.says}", in_markdown(reading.headings, reading.rows)]
    return "\n\n".join(part for part in [*parts, anchors(benchmark, judged)] if part)


def page() -> str:
    """Write the page.

    Returns:
        Markdown.
    """
    return "\n\n".join([INTRODUCTION.strip(), *map(section, benchmarks().values())]) + "\n"


def front_table() -> str:
    """Write the table of README.md: what the translators that ship score, the best first.

    Returns:
        Markdown.
    """
    rows = [row for row in read_rows(RESULTS) if row.condition == TRANSLATION]
    ranked = sorted(rows, key=lambda row: row.values["bleu"], reverse=True)
    return markdown(
        ("weights", "BLEU, 95 % interval", "chrF", "held-out loss", "parameters"),
        (
            (
                f"`{row.variant}`",
                f"{values['bleu']:.1f} ({values['bleu_low']:.1f} to {values['bleu_high']:.1f})",
                f"{values['chrf']:.1f}",
                f"{values['heldout_loss']:.3f}",
                in_words(int(values["parameters"]), ""),
            )
            for row in ranked
            for values in (row.values,)
        ),
    )


def front() -> str:
    """Write README.md, with the table as it should be."""
    table = front_table()
    return TABLE.sub(lambda _: table, FRONT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_rows(RESULTS, rows_of_weights())
    write_file(PAGE, page())
    write_file(FRONT, front())
    print(f"Wrote {RESULTS}, {PAGE} and the table of {FRONT}")
