"""`zoo claims`."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.text import Text

from .output import heading, table, write, write_json
from .parameters import json_option


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
    """Write which published signs came out here."""
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
