"""Write docs/results.md from what `zoo bench run NAME --record` has recorded, and from it the front of README.md.

The front is a table, a row a benchmark, and a picture of one. The rows of the weights that ship are written too.

    python scripts/bench/results.py
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from zoo.benchmarks import Benchmark, Verdicts, benchmarks, find_benchmark, judge, read_rows
from zoo.benchmarks.across import read_across
from zoo.benchmarks.page import anchors, in_markdown, made_on, markdown_table, spread, title, told
from zoo.benchmarks.rows import write_rows
from zoo.benchmarks.weights import RESULTS, rows_of_weights
from zoo.comparison.display.report import charts
from zoo.comparison.display.report.forest import draw_forest
from zoo.comparison.results.metrics import LOSSES
from zoo.comparison.results.summary import VariantSummary
from zoo.files import write_file
from zoo.weights.tables import markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
FRONT = ROOT / "README.md"
PICTURE = ROOT / "docs" / "pictures" / "quirks.svg"

PICTURED = ("quirks", "vanilla")
"""The benchmark and the condition that the picture shows; losses decide it."""

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
    """Write the table of README.md: what stands out in each benchmark, under the condition with most variants.

    Returns:
        Markdown.
    """
    recorded = {name: read_rows(one.results) for name, one in benchmarks().items()}
    judged = (
        max((judge(one, recorded[name], condition) for condition in one.conditions), key=lambda all: len(all.standings))
        for name, one in benchmarks().items()
        if recorded[name]
    )
    return markdown(
        ("benchmark", "decided by", "baseline", "furthest ahead", "furthest behind", "better, within noise, worse"),
        map(front_row, judged),
    )


def front_row(verdicts: Verdicts) -> tuple[str, ...]:
    """Write what stands out in a benchmark."""

    def named(word: str, place: int = 0) -> str:
        found = [one for one in verdicts.standings if one.verdict == word]
        return f"`{found[place].variant}` {spread(found[place].samples.get(verdicts.score))}" if found else "none"

    words = [one.verdict for one in verdicts.standings]
    name = verdicts.benchmark.name
    return (
        f"[{name}](docs/results.md#{name}) {verdicts.condition}".strip(),
        title(verdicts.score).lower(),
        named("baseline"),
        named("better"),
        named("worse", -1),
        ", ".join(str(words.count(word)) for word in ("better", "within noise", "worse")),
    )


def front_picture() -> str:
    """Draw how far each variant of one benchmark is from the baseline.

    Returns:
        A whole SVG document, which follows the reader's preference for light or dark paper.
    """
    benchmark, condition = find_benchmark(PICTURED[0]), PICTURED[1]
    verdicts = judge(benchmark, read_rows(benchmark.results), condition)
    shown = [
        VariantSummary(one.variant, (), dict(one.samples), one.difference, one.verdict) for one in verdicts.standings
    ]
    picture = ElementTree.fromstring(draw_forest(LOSSES[0], shown, condition, None, charts.WIDE) or "<svg/>")
    picture.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "style": "background: var(--card)"}
    style = ElementTree.Element("style")
    style.text = Path(charts.__file__).with_name("chart.css.jinja").read_text(encoding="utf-8")
    picture.insert(0, style)
    return ElementTree.tostring(picture, encoding="unicode") + "\n"


def front() -> str:
    """Write README.md, with the table as it should be."""
    table = front_table()
    return TABLE.sub(lambda _: table, FRONT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_rows(RESULTS, rows_of_weights())
    write_file(PAGE, page())
    write_file(PICTURE, front_picture())
    write_file(FRONT, front())
    print(f"Wrote {RESULTS}, {PAGE}, {PICTURE} and the table of {FRONT}")
