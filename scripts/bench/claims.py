"""Write docs/claims.md, and the numbers of docs/paper.md: what came out of papers' claims, and how far to trust that.

python scripts/bench/claims.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from zoo.base.files import write_file
from zoo.comparison.benchmarks.claims import calibrate, claims
from zoo.comparison.benchmarks.claims.page import calibration_section, tally, theme_section

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"

INTRODUCTION = """# Claims

What papers claim of the variants and parts of the zoo, each beside the smallest comparison that could refute it here,
and what came out of it. The comparisons are over the rows of [Results](results.md), paired by seed; p is that of the
test that decides, corrected for the number of comparisons of a claim ([how](comparing.md#what-may-be-said)): of the
difference, or of its distance from the margin within which something is to be the same, no lower or no higher.
Every claim is judged by itself: of twenty that are false, one may be called true by accident. This page is written by
`python scripts/bench/claims.py`.

- *holds here*: everything that is claimed came out beyond noise.
- *does not hold here*: the opposite of something came out beyond noise.
- *cannot be told at this scale*: so many seeds at this size can tell neither. What follows is the smallest true
  difference that four of five such comparisons would have shown; and, where the true difference is the one that was
  measured, the seeds with which four of five comparisons decide, and the hours of training that are missing, one run
  at a time on the machine that recorded the rows.
- *not recorded yet*: nobody has run the benchmark. Speeds count only where the machine had no other work.

A claim is tested at a size that fits a laptop, so *does not hold here* does not refute the paper: the
[calibration](#calibration) says how often a sign at this scale is that at a larger one. `zoo claims` prints all of
this, and `zoo claims norm=dyt` what is about one part.
"""

CALIBRATION = """## Calibration

Signs that others published at larger sizes were written down in
[calibration.yaml](../zoo/comparison/benchmarks/calibration.yaml) before their rows here were recorded. A sign came
out, or came out the other way, where a paired t-test at 5 % decides between the two, each size by itself; "no
better" comes out where the variant is better by less than the benchmark's margin. All else is undecided, and so is
what rests on a learning rate at the edge of what was tried. The intervals of the rates are those of Clopper and
Pearson, a trial a sign; signs of one comparison from several sources are not independent. A sign drawn at random
comes out in half of the cases: the probability by chance is that of coming out at least as often. Effects are
changes of the loss as shares of the baseline's, where the source has a number.
"""


def page() -> str:
    """Write the page.

    Returns:
        Markdown.
    """
    findings = claims()
    themes = [theme_section(theme, list(group)) for theme, group in groupby(findings, lambda one: one.claim.theme)]
    count = f"{len(findings)} claims: {tally(findings)}."
    parts = [INTRODUCTION.strip(), count, *themes, CALIBRATION.strip(), calibration_section(calibrate())]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write_file(PAGE, page())
    import paper

    write_file(paper.PAGE, paper.page())
    print(f"Wrote {PAGE} and {paper.PAGE}")
