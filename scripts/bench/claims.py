"""Write docs/claims.md, and the numbers of docs/paper.md: what came out of papers' claims, and how far to trust that.

python scripts/bench/claims.py
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from jinja2 import StrictUndefined, Template

from zoo.base.files import write_file
from zoo.base.printed import table_in_markdown
from zoo.comparison.benchmarks.claims import Calibration, Finding, calibrate, claims
from zoo.comparison.benchmarks.claims.page import (
    RATE_HEADINGS,
    THEME_HEADINGS,
    expected,
    numbers,
    rate_row,
    tally,
    theme_rows,
)

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
TEMPLATE = Path(__file__).with_suffix(".md.jinja")


def page() -> str:
    findings = claims()
    themes = [theme_section(theme, list(group)) for theme, group in groupby(findings, lambda one: one.claim.theme)]
    template = Template(TEMPLATE.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True)
    return template.render(
        count=f"{len(findings)} claims. {tally(findings).capitalize()}.",
        themes="\n\n".join(themes),
        calibration=calibration_section(calibrate()),
    )


def theme_section(theme: str, findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        claim = finding.claim
        outcomes = [
            f"{expected(one.contrast)}" + (f": {found}" if (found := numbers(one)) else "") for one in finding.outcomes
        ]
        outcomes += [f"Deviation from the paper: {one}" for one in finding.deviations]
        rows.append(
            [f"`{claim.name}`", f"{claim.claim} ({claim.source})", f"*{finding.verdict}*", "<br>".join(outcomes)]
        )
    heading = theme.replace("-", " ").capitalize()
    return f"## {heading}\n\n{table_in_markdown(['Claim', 'Statement', 'Verdict', 'Comparison'], rows)}"


def calibration_section(calibration: Calibration) -> str:
    """Write which published signs came out, and how often they do."""
    rows = []
    for sign in dict.fromkeys(trial.sign.name for trial in calibration.trials):
        trials = [trial for trial in calibration.trials if trial.sign.name == sign]
        known = trials[0].sign
        compared = f"`{trials[0].outcome.contrast.variant}` against `{trials[0].outcome.contrast.baseline}`"
        cells = [f"{trial.result} {values}" if (values := numbers(trial.outcome)) else trial.result for trial in trials]
        effect = "" if known.effect is None else f"{known.effect:+.2%}"
        published = ", ".join(
            filter(None, (known.published, effect, known.size, known.tokens and f"{known.tokens} tokens"))
        )
        rows.append([f"{known.sign} ({known.source})", published, compared, *cells])
    table = table_in_markdown(["Published", "Sign, effect, size", "Here", *calibration.conditions], rows)
    rates = table_in_markdown(RATE_HEADINGS, [rate_row(calibration, condition) for condition in calibration.conditions])
    left = [f"- {sign.sign} ({sign.source}): {sign.untested}." for sign in calibration.untested]
    themes = table_in_markdown(THEME_HEADINGS, theme_rows(calibration))
    return "\n\n".join([rates, themes, table, "Not tested:", "\n".join(left)])


if __name__ == "__main__":
    write_file(PAGE, page())
    import paper

    write_file(paper.PAGE, paper.page())
    print(f"Wrote {PAGE} and {paper.PAGE}")
