"""Write docs/claims.md, and the numbers of docs/paper.md: what came out of papers' claims, and how far to trust that.

python scripts/bench/claims.py
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

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

INTRODUCTION = """# Claims

Claims of papers about variants and parts of the zoo, each with the smallest comparison that could refute it, and the
result. Comparisons use the rows of [Results](results.md), paired by seed. p is the p-value of the deciding test,
corrected for the number of comparisons of a claim ([how](comparing.md#verdicts)): it tests the difference, or
its distance from the margin where a claim is "the same", "no lower" or "no higher". Claims are not corrected for each
other: of twenty false ones, one may pass by accident. Benchmarks with a limit of seeds (`most_seeds`) add seeds to both
sides until a claim is decided; all looks together have the error of one test, and p-values are in units in which 0.05
decides ([how](comparing.md#seeds-until-it-is-decided)). `python scripts/bench/claims.py` writes this page.

- *holds here*: every comparison of the claim agrees with it beyond noise.
- *does not hold here*: a comparison shows the opposite beyond noise.
- *no difference here*: the claimed difference does not show, and is smaller than the benchmark's margin.
- *inconclusive at this scale*: the recorded seeds decide neither. The smallest true difference that four of five such
  comparisons would detect follows; and, if the true difference is the measured one, the seeds with which four of five
  comparisons decide, and the missing hours of training, one run at a time on the machine that recorded the rows.
- *not recorded yet*: the benchmark has not been run. Speeds count only if the machine had no other work.

Claims are tested at a size that fits a laptop, so *does not hold here* does not refute a paper: the
[calibration](#calibration) measures how often a sign at this scale agrees with that at a larger one. `zoo claims`
prints this page, and `zoo claims norm=dyt` the claims about one part. [Where verdicts differ from papers](reasons.md)
shows how initial values and learning rates change some of them.
"""

CALIBRATION = """## Calibration

Signs published at larger sizes were written down in
[calibration.yaml](../zoo/comparison/benchmarks/calibration.yaml) before their rows here were recorded. A paired t-test
at 5 % decides whether a sign came out, or the other way, for each size by itself; "no better" comes out if the variant
is better by less than the benchmark's margin. Everything else is undecided, as is everything that depends on a learning
rate at the edge of the tried ones. Rates have Clopper-Pearson intervals, one trial per sign; signs of one comparison
from several sources are not independent. A random sign comes out in half of the cases: the probability by chance is
that of coming out at least as often. Effects are changes of the loss relative to the baseline's, where the source has a
number. The second table has the same by theme, with the smallest and the largest difference of what is decided and of
what is not: it shows which kinds of modification a size can judge.
"""


def page() -> str:
    findings = claims()
    themes = [theme_section(theme, list(group)) for theme, group in groupby(findings, lambda one: one.claim.theme)]
    count = f"{len(findings)} claims. {tally(findings).capitalize()}."
    parts = [INTRODUCTION.strip(), count, *themes, CALIBRATION.strip(), calibration_section(calibrate())]
    return "\n\n".join(parts) + "\n"


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
