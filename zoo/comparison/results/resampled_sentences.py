"""Another question than that of the seeds: would the same models come out so on other sentences?

sacreBLEU's paired approximate randomisation exchanges the outputs of two models sentence by sentence (Riezler and
Maxwell 2005). It speaks of the models that were trained, and not of those of another seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from .comparison import Comparison
from .statistics import holm

TRIALS = 1000
METRICS = ("bleu", "chrf")
"""Main scores that sacreBLEU computes."""


def sentence_tests(comparison: Comparison, seed: int | None = None) -> dict[str, float]:
    """Test the variants' outputs against the baseline's, sentence by sentence."""
    seed = comparison.seeds[0] if seed is None else seed
    outputs = {run.name: tuple(run.outputs) for run in comparison.runs if run.seed == seed and run.outputs}
    baseline = outputs.pop(comparison.baseline, None)
    if baseline is None or not outputs or comparison.main_score not in METRICS:
        return {}
    references = tuple(comparison.references)
    p_values = [randomization_p(comparison.main_score, baseline, own, references) for own in outputs.values()]
    return dict(zip(outputs, holm(p_values), strict=True))


@cache
def randomization_p(metric: str, baseline: Sequence[str], own: Sequence[str], references: Sequence[str]) -> float:
    """The p-value of one variant's outputs against the baseline's."""
    if (
        own == baseline
    ):  # sacreBLEU counts exchanges that change more than was found, and would find none that change nothing
        return 1.0
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    chosen = BLEU() if metric == "bleu" else CHRF()
    systems = [("baseline", list(baseline)), ("variant", list(own))]
    _, results = PairedTest(systems, {metric: chosen}, [list(references)], test_type="ar", n_samples=TRIALS)()
    *_, (_, result) = results.values()  # the first names the systems
    return float(result.p_value)
