"""`zoo bench` and `zoo claims`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from .compare import comparison_options
from .output import answer, heading, table, write, write_json
from .parameters import PATH, NamedPath, json_option, refuse_with

if TYPE_CHECKING:
    from zoo.comparison.benchmarks import Benchmark, Row
    from zoo.comparison.display.wide_table import WideTable


class ExistingText(NamedPath):
    """A file or folder, or the name of a corpus, which is downloaded if need be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from zoo.data.corpora import located

        return super().convert(located(value), param, ctx)


data_option = click.option(
    "--data",
    metavar="FILE|DIR|NAME",
    type=ExistingText(exists=True),
    help="The text or corpus (zoo data), where it does not ship.",
)


@click.group("bench")
def bench() -> None:
    """Run benchmarks, and show what was recorded of every variant.

    A benchmark is a comparison with a name and a version: its data, sizes, seeds and training are settled, so that its
    results are comparable. Those of the zoo's own variants ship with it.
    """


@bench.command("list")
@json_option
def list_benchmarks(as_json: bool) -> None:
    """List the benchmarks, how long they take, and how much of each is recorded."""
    from zoo.comparison.benchmarks import benchmarks, read_rows
    from zoo.comparison.results.units import duration

    found = benchmarks()
    rows = [
        (name, duration(60 * one.minutes), str(len(read_rows(one.results))), one.summary) for name, one in found.items()
    ]
    shown = table(("Benchmark", "Two cores", "Rows", "What it asks"), rows, right=("Two cores", "Rows"))
    answer(as_json, {name: asdict(one) for name, one in found.items()}, shown)


@bench.command("run")
@click.argument("name")
@click.argument("variants", nargs=-1)
@data_option
@click.option("--condition", "conditions", multiple=True, help="Only this of its conditions; any number of times.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds; by default the benchmark's.")
@click.option("--quick", is_flag=True, help="A version of less than two minutes, which only shows that it runs.")
@click.option("--record", is_flag=True, help="Add the rows to those that ship.")
@click.option("--decide", is_flag=True, help="Give undecided variants another seed until they are decided.")
@comparison_options("jobs", "launcher", "launch_with")
@click.option(
    "--output", "-o", "output_dir", type=PATH, help="Where models and results go.  [default: outputs/bench/NAME]"
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def run(
    name: str,
    variants: tuple[str, ...],
    conditions: tuple[str, ...],
    launch_with: tuple[tuple[str, Any], ...],
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a benchmark, or only some VARIANTS of it, which may be of your own.

    Finished runs are not repeated, and interrupted ones go on: give the same command again.
    """
    from zoo.comparison.benchmarks import bench as run_benchmark
    from zoo.comparison.benchmarks import find_benchmark, read_rows
    from zoo.comparison.benchmarks.running import deciding

    options |= {"conditions": conditions or None, "launch_with": dict(launch_with), "progress": not quiet}
    tell = None if quiet else partial(click.echo, err=True)
    rows = run_benchmark(name, variants or None, tell=tell, **options)
    if as_json:
        write_json([asdict(row) for row in rows])
    else:
        benchmark = find_benchmark(name)
        benchmark = benchmark.shortened() if options["quick"] else benchmark
        names, ran = {row.variant for row in rows}, {(row.condition, row.data) for row in rows}
        # Verdicts of recorded rows are those of `zoo bench show`, corrected for all variants that are recorded.
        every = read_rows(benchmark.results) if options["record"] else rows
        judged = [row for row in every if (row.condition, row.data) in ran]
        show_rows(deciding(benchmark) if options["decide"] else benchmark, judged, names=names)
    return 1 if any(row.error for row in rows) else 0


@bench.command("show")
@click.argument("name")
@click.option("--score", metavar="COLUMN", help="The score that decides; by default the benchmark's.")
@click.option("--baseline", metavar="VARIANT", help="The variant that the others are compared with.")
@json_option
def show(name: str, score: str | None, baseline: str | None, as_json: bool) -> None:
    """Show what was recorded of a benchmark: means, verdicts against the baseline, costs."""
    from zoo.comparison.benchmarks import find_benchmark, read_rows

    refuse_with("as_json", "name")
    benchmark = find_benchmark(name)
    rows = read_rows(benchmark.results)
    if as_json:
        write_json([asdict(row) for row in rows])
    else:
        show_rows(benchmark, rows, score, baseline)


@bench.command("verify")
@click.argument("name")
@click.option("--rows", "count", type=click.IntRange(min=1), default=1, show_default=True, help="How many to repeat.")
@click.option("--seed", default=0, show_default=True, help="Which ones.")
@data_option
def verify(name: str, count: int, seed: int, data: Path | None) -> int:
    """Repeat recorded rows, and compare the results.

    On the same machine with the same versions a number must be equal to the last bit; elsewhere it must lie within the
    noise that the recorded seeds have. Speeds are repeated in percent of the baseline's, which another machine may
    change.
    """
    from zoo.comparison.benchmarks import find_benchmark, read_rows
    from zoo.comparison.benchmarks import verify as repeat

    benchmark = find_benchmark(name)
    rows = read_rows(benchmark.results)
    repeated = repeat(benchmark, rows, count, data=data, seed=seed, tell=partial(click.echo, err=True))
    for one in repeated:
        recorded = one.row.values[benchmark.score]
        words = {True: "within the noise", False: "NOT the same", None: "another machine, with speeds of its own"}
        word = "equal to the last bit" if one.exact else words[one.holds]
        where = f", {one.row.condition}" if one.row.condition else ""
        click.echo(f"{one.row.variant}, seed {one.row.seed}{where}: {recorded} recorded, {one.value} now: {word}")
    return 1 if any(one.holds is False for one in repeated) else 0


def show_rows(
    benchmark: Benchmark,
    rows: Sequence[Row],
    score: str | None = None,
    baseline: str | None = None,
    *,
    names: Collection[str] | None = None,
) -> None:
    """Print verdicts, of these variants or of all."""
    from zoo.comparison.benchmarks import judge
    from zoo.comparison.benchmarks.across import read_across
    from zoo.comparison.benchmarks.page import table

    data = rows[0].data if rows and all(row.data == rows[0].data for row in rows) else None
    having_baseline = {row.condition for row in benchmark.comparable(rows, data) if row.variant == baseline}
    absent, unfinished, without_baseline = [], [], []
    for condition in benchmark.conditions:
        if having_baseline and condition not in having_baseline:
            without_baseline.append(condition)
            continue
        verdicts = judge(benchmark, rows, condition, score=score, baseline=baseline, data=data)
        if not verdicts.standings:
            absent.append(condition or "any condition")
            continue
        headings, *cells = table(verdicts)
        shown = [row for row in cells if names is None or row[0] in names]
        if not shown:
            unfinished.append(condition or "any condition")
            continue
        if condition:
            write(heading(condition))
        write(wide(headings, shown))
        for argument, variants in verdicts.at_the_edge().items():
            values = ", ".join(f"{name} ({value:g})" for name, value in variants.items())
            click.echo(f"Best with a {argument} at the edge of what was tried: {values}")
        if names is None and verdicts.missing:
            click.echo(f"Not recorded: {', '.join(verdicts.missing)}")
    if without_baseline:
        click.echo(f"{baseline} is not recorded under: {', '.join(without_baseline)}")
    if unfinished:
        click.echo(f"No run has finished under: {', '.join(unfinished)}")
    if absent and names is None:
        click.echo(f"Nothing is recorded under: {', '.join(absent)}")
    if reading := read_across(benchmark, rows, data=data):
        write(heading("All conditions"))
        click.echo(reading.summary)
        write(wide(reading.headings, reading.rows))


def wide(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> WideTable:
    """Put rows that begin with a variant into as many tables below each other as the terminal needs."""
    from zoo.comparison.display.wide_table import WideTable

    names, *columns = zip(*rows, strict=True)
    titled = zip(headings[1:], columns, strict=True)
    return WideTable(names, [[Text(title.replace(" ", "\n", 1)), *map(Text, column)] for title, column in titled])


@click.command("claims")
@click.argument("name", required=False)
@click.option(
    "--calibration", is_flag=True, help="How often verdicts at this scale have the sign that others published."
)
@json_option
def claims(name: str | None, calibration: bool, as_json: bool) -> None:
    """Show which claims of papers hold here, by what is recorded.

    NAME is a claim, a theme ('positions'), or what claims are about ('pre-norm', 'norm=dyt'); of a single claim, the
    source and the numbers are shown, too.
    """
    from zoo.comparison.benchmarks.claims import claims as judge
    from zoo.comparison.benchmarks.claims.page import difference, expected, numbers, tally

    if calibration and name:
        raise click.UsageError(f"--calibration is about all published signs; leave {name!r} out")
    if calibration:
        show_calibration(as_json=as_json)
        return
    findings = judge(name)
    if as_json:
        write_json([finding.to_dict() for finding in findings])
        return
    if len(findings) > 1:
        listed = [
            (one.claim.name, one.claim.claim, one.verdict, "\n".join(filter(None, map(difference, one.outcomes))))
            for one in findings
        ]
        write(
            table(("Name", "Claim", "Verdict", "Difference"), listed),
            Text(f"\n{len(findings)} claims; {tally(findings)}. zoo claims NAME shows sources and numbers."),
        )
        return
    for one in findings:
        write(heading(one.claim.name), Text(f"{one.claim.claim}\n{one.claim.source}"))
        for outcome in one.outcomes:
            result = f"{outcome.verdict}: {found}" if (found := numbers(outcome)) else outcome.verdict
            write(Text(f"\n{expected(outcome.contrast)}"), Text(f"  {result}"))
        write(*(Text(f"\nDeviation from the paper: {deviation}") for deviation in one.deviations))


def show_calibration(*, as_json: bool) -> None:
    from zoo.comparison.benchmarks.claims import calibrate
    from zoo.comparison.benchmarks.claims.page import RATE_HEADINGS, THEME_HEADINGS, rate_row, theme_rows

    found = calibrate()
    rates = {condition: found.rate(condition) for condition in found.conditions}
    if as_json:
        trials = [
            {**asdict(trial), "outcome": trial.outcome.to_dict(), "result": trial.result} for trial in found.trials
        ]
        write_json({**asdict(found), "trials": trials, "rates": {name: asdict(rate) for name, rate in rates.items()}})
        return
    signs = dict.fromkeys(trial.sign.name for trial in found.trials)
    rows = [(name, *(trial.result for trial in found.trials if trial.sign.name == name)) for name in signs]
    write(table(("Published sign", *found.conditions), rows), heading("How often the published sign came out"))
    write(table(RATE_HEADINGS, [rate_row(found, name) for name in found.conditions]))
    write(heading("By theme"), table(THEME_HEADINGS, theme_rows(found)))
    for sign in found.untested:
        write(Text(f"{sign.name} is not tested: {sign.untested}"))
