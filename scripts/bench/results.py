"""Write docs/results.md from what `zoo bench run NAME --record` has recorded, and a page and a picture a benchmark.

The fronts of README.md and README.pt-BR.md, a table with a row a benchmark and a picture of one, and the rows of the
weights that ship are written too.

    python scripts/bench/results.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from zoo.base.files import replace_part, write_file
from zoo.base.printed import table_in_markdown
from zoo.comparison.benchmarks import Benchmark, Verdicts, benchmarks, judge, read_rows
from zoo.comparison.benchmarks.across import read_across
from zoo.comparison.benchmarks.page import description, in_markdown, made_on, markdown_table, spread, title
from zoo.comparison.benchmarks.published import anchors
from zoo.comparison.benchmarks.rows import Row, write_rows
from zoo.comparison.benchmarks.weights import RESULTS, rows_of_weights
from zoo.comparison.display.report import charts
from zoo.comparison.display.report.forest import draw_forest
from zoo.comparison.results.metrics import LOSSES
from zoo.comparison.results.statistics import BETTER, EDGE, EQUAL, NOISE, SAME, UNDECIDED, UNKNOWN, WORSE
from zoo.comparison.results.summary import VariantSummary

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
FRONTS = {
    ROOT / "README.md": (
        *("benchmark", "decided by", "baseline", "best", "worst"),
        *("better, the same, undecided, worse", "none"),
    ),
    ROOT / "README.pt-BR.md": (
        *("benchmark", "decidido por", "referência", "o melhor", "o pior"),
        *("melhores, iguais, indecididas, piores", "nenhum"),
    ),
}
"""Pages with the table of all benchmarks: its headings, and the word for an empty cell."""
PAGES = PAGE.with_suffix("")
PICTURE = ROOT / "docs" / "pictures" / "quirks.svg"
PICTURES = PICTURE.with_name("results")

ENOUGH = 3
"""As many variants have to be recorded before the front shows a benchmark."""

PICTURED = ("quirks", "vanilla")
"""The benchmark and the condition that the picture of README.md shows."""

INTRODUCTION = """# Results

Variants, measured: what `zoo bench run NAME --record` has written, put into tables by
`python scripts/bench/results.py`, a page a benchmark. Verdicts on published [claims](claims.md) have
their own page.

`zoo bench show NAME` prints a table, `zoo list --sort NAME` puts the best variants first, and `zoo show VARIANT`
prints those of one variant. `zoo bench run NAME VARIANT` repeats a row or adds your own, and
`zoo bench verify NAME` repeats some rows and compares the results. Quality does not depend on other work
of a machine; speed does, so speeds are shown only where variants took turns ([speed](results/speed.md)), and the CSV
files record how busy the machine was.

Scores of the [weights that ship](weights.md) have their own rows, in
[weights.csv](../zoo/comparison/benchmarks/results/weights.csv), written from the very files that their cards read.
"""

PUBLISHED = "## Published numbers and ours"

HOW_TO_READ = """A row is a variant: the mean over its seeds and the sample standard deviation, the difference from the
baseline (the first variant of the benchmark), and the verdict of a test that is paired by seed and corrected for the
number of variants ([how](../comparing.md#verdicts)). *Within noise*, and *undecided* where a benchmark adds
seeds, mean that these runs cannot distinguish the two, not that they are the same. "(4 seeds)" after a verdict: the
test decided after the first four, and difference and p are of these."""


class Recorded(NamedTuple):
    """Recorded results of a benchmark, read and judged once for all pages."""

    benchmark: Benchmark
    rows: list[Row]
    judged: dict[str, Verdicts]

    @classmethod
    def of(cls, benchmark: Benchmark) -> Recorded:
        """Read and judge it under each of its conditions."""
        rows = read_rows(benchmark.results)
        return cls(benchmark, rows, {name: judge(benchmark, rows, name) for name in benchmark.conditions})


def benchmark_page(recorded: Recorded) -> str:
    """Write the results of a benchmark, as Markdown."""
    benchmark, rows, judged = recorded.benchmark, recorded.rows, recorded.judged
    parts = [f"# {benchmark.name}", f"{benchmark.summary} {benchmark.source}".strip(), HOW_TO_READ, *benchmark.notes]
    if not rows:
        return "\n\n".join([*parts, "Nothing is recorded yet."]) + "\n"
    parts.append(made_on(rows))
    if drawn := pictured(judged.values()):
        alt = f"Differences from {baseline(drawn)}, {drawn.condition}".rstrip(", ")
        parts.append(f"![{alt}](../pictures/results/{benchmark.name}.svg)")
    for condition, verdicts in judged.items():
        if verdicts.standings:
            parts += [f"## {condition}"] if condition else []
            parts += [markdown_table(verdicts), description(verdicts)]
    if reading := read_across(benchmark, rows):
        parts += [f"## All conditions\n\n{reading.summary}", in_markdown(reading.headings, reading.rows)]
    return "\n\n".join(part for part in [*parts, anchors(benchmark, judged)] if part) + "\n"


def pictured(judged: Iterable[Verdicts]) -> Verdicts | None:
    """Choose what the picture of a benchmark shows: its first condition with differences; None without any."""
    return next((one for one in judged if any(row.difference is not None for row in one.standings)), None)


def baseline(verdicts: Verdicts) -> str:
    """Name what the others are compared with."""
    return next(one.variant for one in verdicts.standings if one.verdict == "baseline")


def overview(found: Iterable[Recorded]) -> str:
    """Write the page that leads to those of the benchmarks: what each asks, what is recorded, what others published.

    Args:
        found: All benchmarks.

    Returns:
        Markdown.
    """
    lines, published = [], []
    for one in found:
        link = f"[{one.benchmark.name}](results/{one.benchmark.name}.md)"
        variants = {row.variant for row in one.rows}
        lines.append((link, one.benchmark.summary, str(len(one.rows)), str(len(variants))))
        published.append(anchors(one.benchmark, one.judged, f"{link}, "))
    table = table_in_markdown(("benchmark", "what it asks", "runs", "variants"), lines)
    return "\n\n".join([INTRODUCTION.strip(), table, PUBLISHED, "\n".join(filter(None, published))]) + "\n"


def pages() -> dict[Path, str]:
    """Write all that is made of the rows.

    Returns:
        The text of every file.
    """
    found = {name: Recorded.of(one) for name, one in benchmarks().items()}
    shown = found[PICTURED[0]].judged[PICTURED[1]]
    written = {PAGE: overview(found.values()), **fronts(found.values()), PICTURE: picture(shown)}
    for name, recorded in found.items():
        written[PAGES / f"{name}.md"] = benchmark_page(recorded)
        if drawn := pictured(recorded.judged.values()):
            written[PICTURES / f"{name}.svg"] = picture(drawn)
    return written


def fronts(found: Iterable[Recorded]) -> dict[Path, str]:
    """Write README.md in each language, with the table as it should be."""
    command = "python scripts/bench/results.py"
    return {
        page: replace_part(page.read_text(encoding="utf-8"), command, front_table(found, headings, empty))
        for page, (*headings, empty) in FRONTS.items()
    }


def front_table(found: Iterable[Recorded], headings: Sequence[str], empty: str) -> str:
    """Write the table of README.md: the extremes of each benchmark, under its first condition with enough tests.

    Args:
        found: All benchmarks.
        headings: The table's, six.
        empty: The word where no variant is to be named.

    Returns:
        Markdown.
    """
    enough = (
        [one for one in recorded.judged.values() if sum(row.verdict != UNKNOWN for row in one.standings) >= ENOUGH]
        for recorded in found
    )
    rows = (front_row(verdicts, empty) for verdicts, *_ in filter(None, enough))
    return f"{table_in_markdown(headings, rows)}\n"


def front_row(verdicts: Verdicts, empty: str) -> tuple[str, ...]:
    """Write the best and the worst of a benchmark."""

    def named(word: str, place: int = 0) -> str:
        found = [one for one in verdicts.standings if one.verdict == word]
        return f"`{found[place].variant}` {spread(found[place].samples.get(verdicts.score))}" if found else empty

    words = [one.verdict for one in verdicts.standings]
    name = verdicts.benchmark.name
    return (
        f"[{name}](docs/results/{name}.md) {verdicts.condition}".strip(),
        title(verdicts.score).lower(),
        named("baseline"),
        named("better"),
        named("worse", -1),
        ", ".join(
            str(sum(map(words.count, ones))) for ones in ((BETTER,), (SAME, EQUAL), (NOISE, UNDECIDED, EDGE), (WORSE,))
        ),
    )


def picture(verdicts: Verdicts) -> str:
    """Draw how far each variant of a benchmark is from the baseline.

    Returns:
        A whole SVG document, which follows the reader's preference for light or dark paper.
    """
    shown = [
        VariantSummary(one.variant, (), dict(one.samples), one.difference, one.verdict) for one in verdicts.standings
    ]
    score = replace(LOSSES[0], title=title(verdicts.score), better=verdicts.benchmark.better(verdicts.score))
    drawn = draw_forest(score, shown, baseline(verdicts), charts.WIDE)
    svg = ElementTree.fromstring(drawn or "<svg/>")
    svg.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "style": "background: var(--card)"}
    style = ElementTree.Element("style")
    style.text = Path(charts.__file__).with_name("chart.css.jinja").read_text(encoding="utf-8")
    svg.insert(0, style)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


if __name__ == "__main__":
    write_rows(RESULTS, rows_of_weights())
    written = pages()
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        write_file(path, text)
    print(
        f"Wrote {RESULTS}, the tables of {len(FRONTS)} fronts, and {len(written) - len(FRONTS)} pages and pictures "
        f"from {PAGE} on"
    )
