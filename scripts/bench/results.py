"""Write docs/results.md from what `zoo bench run NAME --record` has recorded, and the rows of weights that ship.

python scripts/bench/results.py
"""

from __future__ import annotations

from pathlib import Path

from zoo.benchmarks import Benchmark, benchmarks, judge, read_rows
from zoo.benchmarks.page import anchors, made_on, markdown_table, told
from zoo.benchmarks.rows import write_rows
from zoo.benchmarks.weights import RESULTS, rows_of_weights
from zoo.files import write_file

PAGE = Path(__file__).parents[2] / "docs" / "results.md"

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
    return "\n\n".join(part for part in [*parts, anchors(benchmark, judged)] if part)


def page() -> str:
    """Write the page.

    Returns:
        Markdown.
    """
    return "\n\n".join([INTRODUCTION.strip(), *map(section, benchmarks().values())]) + "\n"


if __name__ == "__main__":
    write_file(PAGE, page())
    write_rows(RESULTS, rows_of_weights())
    print(f"Wrote {PAGE} and {RESULTS}")
