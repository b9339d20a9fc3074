"""Write docs/results.md from what `zoo bench run NAME --record` has recorded, and a page and a picture a benchmark.

The fronts of README.md and README.pt-BR.md, a table with a row a benchmark and a picture of one, and the rows of the
weights that ship are written too.

    python scripts/bench/results.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from jinja2 import StrictUndefined, Template

from zoo.base.files import replace_part, write_file
from zoo.base.printed import table_in_markdown
from zoo.building.weights.built_in import read_definitions
from zoo.comparison.benchmarks import Benchmark, Verdicts, benchmarks, judge, read_rows
from zoo.comparison.benchmarks.across import averages, read_across
from zoo.comparison.benchmarks.definition import FOLDER, Anchor
from zoo.comparison.benchmarks.judging import Standing
from zoo.comparison.benchmarks.page import in_markdown, spread, table, title
from zoo.comparison.benchmarks.rows import Row, write_rows
from zoo.comparison.display.report import charts
from zoo.comparison.display.report.charts import draw_forest
from zoo.comparison.results.design import FAILED, measured
from zoo.comparison.results.metrics import LOSSES
from zoo.comparison.results.statistics import (
    BETTER,
    EDGE,
    EQUAL,
    NOISE,
    SAME,
    UNDECIDED,
    UNKNOWN,
    WORSE,
    Measurements,
    pareto_front,
    student_interval,
)
from zoo.comparison.results.summary import VariantSummary
from zoo.comparison.results.units import counted
from zoo.registry import Weights, find_weights

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

RESULTS = FOLDER / "results" / "weights.csv"
"""Rows of the weights that ship. Their numbers are next to the weights (evaluations.json); a test compares the two."""

VERSION = 1  # Of what the columns of these rows mean

ENOUGH = 3
"""As many variants have to be recorded before the front shows a benchmark."""

PICTURED = ("quirks", "vanilla")
"""The benchmark and the condition that the picture of README.md shows."""

TEMPLATE = Path(__file__).with_suffix(".md.jinja")

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
    """Write the page that leads to those of the benchmarks: what each asks, what is recorded, what others published."""
    lines, published = [], []
    for one in found:
        link = f"[{one.benchmark.name}](results/{one.benchmark.name}.md)"
        variants = {row.variant for row in one.rows}
        lines.append((link, one.benchmark.summary, str(len(one.rows)), str(len(variants))))
        published.append(anchors(one.benchmark, one.judged, f"{link}, "))
    table = table_in_markdown(("benchmark", "what it asks", "runs", "variants"), lines)
    template = Template(TEMPLATE.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True)
    return template.render(benchmarks=table, published="\n".join(filter(None, published)))


def pages() -> dict[Path, str]:
    """Write all that is made of the rows, by file."""
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
    """Write the table of README.md: the extremes of each benchmark, under its first condition with enough tests."""
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
    """Draw how far each variant is from the baseline: a whole SVG document, light or dark as readers prefer."""
    shown = [
        VariantSummary(one.variant, (), dict(one.samples), one.difference, one.verdict) for one in verdicts.standings
    ]
    score = replace(LOSSES[0], title=title(verdicts.score), better=verdicts.benchmark.better(verdicts.score))
    drawn = draw_forest(score, shown, baseline(verdicts), charts.WIDE, verdicts.design.margin)
    svg = ElementTree.fromstring(drawn or "<svg/>")
    svg.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "style": "background: var(--card)"}
    style = ElementTree.Element("style")
    style.text = Path(charts.__file__).with_name("chart.css.jinja").read_text(encoding="utf-8")
    svg.insert(0, style)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def front(verdicts: Verdicts, cost: str) -> list[Standing]:
    """Find the Pareto front: the variants that none beats both in score and in cost, of those that lost fewest runs."""
    both = [one for one in verdicts.standings if verdicts.score in one.samples and cost in one.samples]
    fewest = min((one.lost for one in both), default=0)
    both = [one for one in both if one.lost == fewest]
    better = verdicts.benchmark.better(verdicts.score)
    found = pareto_front(both, lambda one: (better * one.samples[verdicts.score].mean, -one.samples[cost].mean))
    return sorted(found, key=lambda one: one.samples[cost].mean)


def markdown_table(verdicts: Verdicts) -> str:
    headings, *cells = table(verdicts)
    return in_markdown(headings, cells)


def description(verdicts: Verdicts) -> str:
    """Describe a table: which variants are better, worse, undecided, or failed and why, and the Pareto front."""
    labels = {
        "better": "Better than the baseline beyond noise",
        "worse": "Worse than the baseline beyond noise",
        "the same": f"The same within {verdicts.benchmark.margin or 0.0:g}",
        EQUAL: "Equal to the baseline with every seed",
        "within noise": "No different from the baseline beyond noise",
        "undecided": f"Undecided, of at most {verdicts.benchmark.most_seeds} seeds",
        EDGE: "Undecided, as a swept value is best at the edge of what was tried",
        "untested": "With too few seeds to test",
    }
    lines = []
    for word, label in labels.items():
        if found := [f"`{one.variant}`" for one in verdicts.standings if one.verdict == word]:
            lines.append(f"- {label}: {', '.join(found)}.")
    failed = [one for one in verdicts.standings if one.verdict == FAILED]
    lines += [f"- `{one.variant}` failed: {one.rows[0].error or 'its score is no number'}." for one in failed]
    if len(verdicts.standings) > 1 and (cheapest := front(verdicts, "training_flops")):
        names = ", ".join(f"`{one.variant}`" for one in cheapest)
        lines.append(
            f"- Best for the operations that training takes (the Pareto front of the means, cheapest first): {names}."
        )
    for argument, variants in verdicts.at_the_edge().items():
        values = ", ".join(f"`{name}` ({value:g})" for name, value in variants.items())
        lines.append(
            f"- Best with a `{argument}` at the edge of what was tried, so perhaps better beyond it: {values}."
        )
    lines += [
        f"- Weight decay is not equal for `{one.variant}`: {what} decay in one of the two alone."
        for one in verdicts.standings
        if (what := verdicts.unequal_decay(one.variant))
    ]
    lines += [
        f"- `{one.variant}` differs from its paper: {what}" for one in verdicts.standings for what in one.deviations
    ]
    if verdicts.missing:
        lines.append(f"- Not recorded yet: {', '.join(f'`{name}`' for name in verdicts.missing)}.")
    return "\n".join(lines)


def made_on(rows: Sequence[Row]) -> str:
    """Describe when, where and by which versions rows were made."""

    def listed(values: Iterable[str]) -> str:
        return ", ".join(sorted(set(values)))

    dates = sorted({row.date for row in rows})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    busy = sum(row.was_busy for row in rows)
    idle = "on an idle machine" if not busy else f"{busy} of {len(rows)} while the machine had other work"
    where = f"{listed(row.machine for row in rows)}, {listed(counted(row.threads, 'thread') for row in rows)}, {idle}"
    made = f"zoo {listed(row.zoo for row in rows)}, torch {listed(row.torch for row in rows)}"
    made += f", transformers {listed(row.transformers for row in rows)}"
    return f"{counted(len(rows), 'run')}, {days}; {where}; {made}."


def anchors(benchmark: Benchmark, judged: Mapping[str, Verdicts], lead: str = "Published for ") -> str:
    """List published numbers next to the recorded ones: how near they are, and whether chance explains the rest."""
    lines = []
    for anchor in benchmark.anchors:
        sample = anchored(anchor, benchmark, judged)
        came = "not recorded yet" if sample is None else compared(anchor, sample)
        lines.append(f"- {lead}`{anchor.variant}`: {anchor.value:g} ({anchor.source}); {came}.")
    return "\n".join(lines)


def anchored(anchor: Anchor, benchmark: Benchmark, judged: Mapping[str, Verdicts]) -> Measurements | None:
    """Find what a published number is about."""
    if anchor.condition in judged:
        standing = judged[anchor.condition].of(anchor.variant)
        return None if standing is None else standing.samples.get(benchmark.score)
    rows = [row for verdicts in judged.values() for standing in verdicts.standings for row in standing.rows]
    return measured(averages(benchmark, rows).get(anchor.variant, {}).values())


def compared(anchor: Anchor, sample: Measurements) -> str:
    """Describe how near the recorded scores are, and whether Student's interval, if any, contains it."""
    least, most = anchor.room
    if anchor.tolerance is None:
        needed = f"an average over {anchor.averaged_over} scores, this one included, needs {least:.4g} to {most:.4g}"
        came = f"{spread(sample)} here, where {needed}"
    else:
        near = abs(sample.mean - anchor.value) <= anchor.tolerance
        came = f"{spread(sample)} here, {'within' if near else 'NOT within'} {anchor.tolerance:g} of it"
    if not sample.deviation:
        return came
    low, high = student_interval(sample.values)
    word = "excludes" if high < least or most < low else "does not exclude"
    return f"{came}; the interval of 95 % for the mean, {low:.4g} to {high:.4g}, {word} it"


def rows_of_weights() -> list[Row]:
    """Write the scores of the weights that ship in the form of other results."""
    rows = [row_of_weights(find_weights(name)) for name in read_definitions("shipped")]
    return sorted(rows, key=lambda row: row.key)


def row_of_weights(weights: Weights) -> Row:
    """Make the row of weights: held-out scores with the bounds of their 95 % intervals."""
    values = {"parameters": float(weights.num_parameters or 0)}
    for key, score in weights.scores.items():
        column = "heldout_loss" if key == "loss" else key
        values[column] = score.value
        if score.interval is not None:
            values[f"{column}_low"], values[f"{column}_high"] = score.interval
    return Row(
        version=VERSION,
        condition=weights.recipe or "",
        variant=weights.name,
        seed=weights.seed or 0,
        settings={"command": weights.command_line},
        values=values,
        zoo=weights.versions.get("transformer-zoo", ""),
        torch=weights.versions.get("torch", ""),
        transformers=weights.versions.get("transformers", ""),
    )


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
