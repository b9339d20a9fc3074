"""Findings of a comparison, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ..request.seeds import FEWEST_SEEDS
from ..results.comparison import Comparison
from ..results.design import BASELINE, FAILED, FIXED, Design
from ..results.metrics import Metric
from ..results.statistics import (
    BETTER,
    EQUAL,
    ERROR,
    LEVEL,
    MOST_SEEDS,
    NOISE,
    SAME,
    UNDECIDED,
    UNKNOWN,
    WORSE,
    detectable,
    holm,
    most_coverage,
    same_within,
    seeds_needed,
    smallest_difference,
    typical_spread,
)
from ..results.summary import ComparisonSummary, VariantSummary
from ..results.units import counted, p_value, percent, with_p
from .formatting import signed, span

TRIALS = 1000
METRICS = ("bleu", "chrf")  # Main scores that sacreBLEU computes


def sentence_tests(comparison: Comparison) -> dict[str, float]:
    """Test the variants' outputs against the baseline's, sentence by sentence.

    sacreBLEU's paired approximate randomisation exchanges the outputs of two models (Riezler and Maxwell 2005). It asks
    whether these trained models would differ on other sentences, not with other seeds.
    """
    first = comparison.seeds[0]
    outputs = {run.name: tuple(run.outputs) for run in comparison.runs if run.seed == first and run.outputs}
    baseline = outputs.pop(comparison.baseline, None)
    if baseline is None or not outputs or comparison.main_score not in METRICS:
        return {}
    references = tuple(comparison.references)
    p_values = [randomization_p(comparison.main_score, baseline, own, references) for own in outputs.values()]
    return dict(zip(outputs, holm(p_values), strict=True))


@cache
def randomization_p(metric: str, baseline: Sequence[str], own: Sequence[str], references: Sequence[str]) -> float:
    if own == baseline:  # else sacreBLEU finds no exchange that changes more, and p is near zero
        return 1.0
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    from zoo.data.tasks.scores import bleu_metric

    chosen = bleu_metric(references) if metric == "bleu" else CHRF()
    systems = [("baseline", list(baseline)), ("variant", list(own))]
    _, results = PairedTest(systems, {metric: chosen}, [list(references)], test_type="ar", n_samples=TRIALS)()
    *_, (_, result) = results.values()  # the first names the systems
    return float(result.p_value)


UNEQUAL_USE = 1.5  # Ratio of the highest to the lowest MFU from which on it is stated


def sentences(summary: ComparisonSummary) -> Iterator[str]:
    """Findings of a comparison: a sentence a variant, and the design that they rest on."""
    yield from (finding for _, finding in findings(summary))
    if not is_tested(summary) and (summary.main is None or len(summary.rows) > 1):
        yield headline(summary)
    yield from basis(summary)


def headline(summary: ComparisonSummary) -> str:
    """State in one sentence how many variants differ from the baseline."""
    verdicts = [row.verdict for row in summary.rows if row.verdict != BASELINE]
    baseline = summary.comparison.baseline
    if summary.main is None:
        return "No run has finished: nothing to compare."
    if not verdicts:
        return f"{baseline} is the only variant: give other variants to compare it with."
    if len(summary.comparison.seeds) < FEWEST_SEEDS and {*verdicts} <= {UNKNOWN, FAILED}:
        return "Fewer than three seeds: differences cannot be tested; give --seeds 3 or more."
    words = (BETTER, WORSE, SAME, EQUAL, NOISE, UNDECIDED, UNKNOWN, FAILED)
    parts = [f"{verdicts.count(word)} {word}" for word in words if word in verdicts]
    return f"Of {counted(len(verdicts), 'variant')} against {baseline}: {', '.join(parts)}."


def findings(summary: ComparisonSummary) -> Iterator[tuple[VariantSummary, str]]:
    if summary.main is None:
        return
    tests = sum(difference.p is not None for difference in summary.differences)
    for row in summary.rows:
        if row.verdict != BASELINE:
            finding = sentence(row, summary.main, summary.comparison.baseline, tests, summary.design)
            qualified = "; ".join(summary.fairness.qualifications[row.name])
            yield row, f"{finding} To be read with: {qualified}." if qualified else finding


def basis(summary: ComparisonSummary) -> Iterator[str]:
    """Describe the basis of the findings: noise, tests, intervals; and other readings."""
    main = summary.main
    if main is None:
        return
    if is_tested(summary):
        yield from findings_on_tests(summary, main)
        yield from findings_on_power(summary, main)
    else:
        yield from findings_on_sentences(summary)
    yield from findings_on_utilization(summary)
    yield from findings_on_machines(summary)


def findings_on_machines(summary: ComparisonSummary) -> Iterator[str]:
    """State where runs had unequal machines or threads, as after a comparison went on elsewhere."""
    runs = [run.circumstances for run in summary.comparison.runs if run.circumstances]
    places = sorted({(made["machine"], made["threads"]) for made in runs})
    if len(places) > 1:
        listed = "; ".join(f"{machine}, {counted(threads, 'thread')}" for machine, threads in places)
        yield f"Runs were made by unequal means ({listed}): their speeds and MFU cannot be compared."


def findings_on_utilization(summary: ComparisonSummary) -> Iterator[str]:
    """State where variants make unequal use of the hardware, so that equal FLOPs are not equal time."""
    key = "model_flops_utilization"
    means = {row.name: row.samples[key].mean for row in summary.rows if key in row.samples}
    least, most = (choose(means, key=lambda name: means[name], default="") for choose in (min, max))
    if means and means[most] >= UNEQUAL_USE * means[least]:
        yield (
            f"MFU differs, from {percent(means[least])} of {least} to {percent(means[most])} of {most}: equal FLOPs "
            "are not equal time on this machine. FLOPs count matrix products; memory traffic and small operations take "
            "time without any. Train tok/s compares speed."
        )


def findings_on_tests(summary: ComparisonSummary, main: Metric) -> Iterator[str]:
    tested = [difference for difference in summary.differences if difference.p is not None]
    pairs, design = [difference.pairs for difference in tested], summary.design
    how = "" if design.margin is not None or design.limit is not None else " after Holm"
    yield (
        f"Tested by paired t-tests of {main.title} over {span(pairs)} seeds, corrected for "
        f"{counted(len(tested), 'variant')}{how}, intervals too: where all variants are alike, at most one such "
        "comparison in twenty finds a difference."
    )
    if design.margin is not None:
        yield (
            f"Differences within ±{main.write(design.margin)}, the margin that was named before, count as the same, by "
            "two one-sided t-tests; the error of one in twenty covers both kinds of verdict."
        )
    if design.limit is not None:
        seeds = max(len(row.runs) for row in summary.rows)
        yield (
            f"Undecided variants got another seed until they were decided, from three seeds to at most {design.limit}; "
            f"after {counted(seeds - 2, 'round')} {percent(ERROR * design.spent(seeds))} of the error of "
            f"{percent(ERROR)} is spent, and each round's tests and intervals have the level that the others leave."
        )
    if any(difference.lost for difference in tested):
        yield "A run that failed is worse than any that finished: with one, signs are tested, not sizes."
    sizes = [len(row.samples[main.key].values) for row in summary.rows if main.key in row.samples]
    fewest = min(size for size in sizes if size > 1)
    if most_coverage(fewest) < LEVEL:
        yield (
            f"Bootstrap intervals of {fewest} seeds lie within their values, so they hold the mean in "
            f"{100 * most_coverage(fewest):.0f} % of cases at best; verdicts do not rest on them."
        )


def findings_on_power(summary: ComparisonSummary, main: Metric) -> Iterator[str]:
    """Describe the smallest difference that these seeds find, and the seeds needed for half of it."""
    typical = typical_spread(summary.differences)
    if typical is None or summary.design.limit is not None:
        return
    deviation, seeds, tests = typical
    found = smallest_difference(deviation, seeds, tests)
    needed = seeds_needed(deviation, found / 2, tests)
    yield (
        f"A true difference of {main.write(found)} {main.title} is found in four of five such comparisons with {seeds} "
        f"seeds; half of it takes {needed or f'more than {MOST_SEEDS}'}."
    )


def findings_on_sentences(summary: ComparisonSummary) -> Iterator[str]:
    p_values = sentence_tests(summary.comparison)
    if not p_values:
        return
    named = ", ".join(f"{name} ({with_p(p_value(p))})" for name, p in p_values.items() if p < ERROR)
    yield (
        f"Of seed {summary.comparison.seeds[0]} alone, outputs differ beyond the choice of sentences (sacreBLEU's "
        f"paired approximate randomisation, after Holm; another seed may be another matter): {named or 'none'}."
    )


def is_tested(summary: ComparisonSummary) -> bool:
    """Whether any variant has been tested against the baseline; a single seed tests nothing."""
    return any(row.difference is not None and row.difference.p is not None for row in summary.rows)


def sentence(row: VariantSummary, main: Metric, baseline: str, tests: int, design: Design = FIXED) -> str:
    difference = row.difference
    if row.verdict == FAILED:
        return f"{row.name} failed with every seed."
    failed = f" {counted(len(row.failed), 'run')} of {len(row.runs)} failed." if row.failed else ""
    if difference is None:
        return f"{row.name} has no seed in common with {baseline} for which both have a {main.title}.{failed}"
    distance = f"{signed(main.write, difference.mean)} {main.title}"
    if row.verdict == EQUAL:
        return f"{row.name} and {baseline} have the same {main.title} with each of {difference.pairs} seeds.{failed}"
    if difference.adjusted is None:
        are_few = difference.pairs + difference.lost < FEWEST_SEEDS
        few = "fewer than three seeds" if are_few else "runs of both with a single seed"
        same = f"has the same {main.title} as {baseline}"
        differs = same if difference.is_equal else f"differs from {baseline} by {distance}"
        return f"{row.name} {differs}; {few} test nothing.{failed}"
    ends = "" if difference.interval is None else " to ".join(signed(main.write, end) for end in difference.interval)
    interval = f"corrected interval {ends}, " if ends else ""
    numbers = f"{distance}, {interval}{with_p(p_value(difference.decisive or 0.0))}"
    numbers += " after Holm" if design == FIXED else f", {counted(difference.pairs, 'seed')}" if design.limit else ""
    if row.verdict == SAME and design.margin is not None:
        return f"{row.name} is the same as {baseline} within ±{main.write(design.margin)}: {numbers}.{failed}"
    if row.verdict == UNDECIDED:
        least = detectable(difference)
        seen = "" if least is None else f"; {main.write(least)} would have been found in four of five such comparisons"
        return f"{row.name} against {baseline} is undecided: {numbers}{seen}.{failed}"
    if row.verdict == NOISE:
        margin = same_within(difference, tests) if design == FIXED and difference.pairs == len(row.runs) else None
        same = "" if margin is None else f"; the same within ±{main.write(margin)} by two one-sided t-tests"
        return f"{row.name} does not differ from {baseline} beyond noise: {numbers}{same}.{failed}"
    return f"{row.name} is {row.verdict} than {baseline}: {numbers}.{failed}"
