"""Write the tables of docs/reasons.md: verdicts against papers, under the conditions that could explain them.

python scripts/bench/reasons.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.base.files import replace_part
from zoo.base.printed import table_in_markdown
from zoo.comparison.benchmarks.claims.contrast import Contrast
from zoo.comparison.benchmarks.claims.judging import Evidence, design_of, judge_contrasts
from zoo.comparison.benchmarks.claims.page import tested
from zoo.comparison.benchmarks.definition import Benchmark, benchmarks
from zoo.comparison.benchmarks.page import spread
from zoo.comparison.benchmarks.rows import Row, read_rows

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"
COMMAND = "python scripts/bench/reasons.py"

FORMER = "500 steps, deviation 0.02"
SWEPT = "500 steps, learning rate swept"
OPERATIONS = "500 steps, equal operations"
RATES = ("3e-4", "1e-3", "3e-3", "1e-2", "3e-2")
DEPTHS = ("6 layers", "12 layers", "24 layers", "48 layers")

Compared = tuple[str, str, str, str]
"""A benchmark, a condition, a variant and its baseline."""


def on_characters(variant: str, baseline: str, *conditions: str) -> list[Compared]:
    return [("char-lm", condition, variant, baseline) for condition in conditions or (FORMER, "500 steps", SWEPT)]


def by_rate(variant: str) -> list[Compared]:
    return [("lr-robustness", rate, variant, "pre-norm") for rate in RATES]


def by_depth(variant: str, suffix: str) -> list[Compared]:
    return [("depth", f"{depth}, {suffix}", variant, "pre-norm") for depth in DEPTHS]


def on_translation(variant: str, baseline: str) -> list[Compared]:
    return [("translation-en-pt", f"600 steps{more}", variant, baseline) for more in ("", ", Adafactor")]


TABLES: dict[str, list[Compared]] = {
    "dynamic tanh": [
        *on_characters("gpt2-style:norm=dyt", "gpt2-style", "500 steps"),
        *on_characters("gpt2-style:norm=dyt,scale_embedding=true", "gpt2-style"),
        *by_rate("pre-norm:norm=dyt"),
    ],
    "ReZero": [
        *on_characters("rezero", "pre-norm"),
        *by_rate("rezero"),
        *by_depth("rezero", "no warm-up"),
    ],
    "NormFormer": [
        *on_characters("normformer", "pre-norm"),
        *by_rate("normformer"),
        *by_depth("normformer", "warm-up"),
    ],
    "differential attention": [
        *on_characters("diff-transformer", "llama-style"),
        *(("ladder", size, "gpt2-style:attention=differential", "gpt2-style") for size in ("0.1 M", "0.3 M", "1 M")),
    ],
    "nGPT": on_characters("ngpt", "llama-style"),
    "experts": [
        *on_characters("mixtral-style", "llama-style", FORMER, "500 steps"),
        *on_characters("gpt2-style:feed_forward=moe", "gpt2-style", OPERATIONS),
    ],
    "T5": [
        *on_translation("t5-style", "pre-norm"),
        *on_translation("t5-style", "t5-style:attention_scale=head-dim"),
        *on_translation("t5-style:attention_scale=head-dim", "pre-norm"),
        *on_translation("pre-norm:position=t5", "pre-norm"),
    ],
    "DeepNorm": [
        ("translation-en-pt", "600 steps", variant, baseline)
        for variant, baseline in (
            ("deepnorm", "post-norm"),
            ("deepnorm:initializer=xavier-uniform", "post-norm"),
            ("post-norm:initializer=deepnorm", "post-norm"),
            ("deepnorm", "deepnorm:initializer=xavier-uniform"),
        )
    ],
    "shared layers": on_characters("gpt2-style:share_layers=true", "gpt2-style", "500 steps", OPERATIONS),
}

HEADINGS = ("Benchmark", "Variant", "Its {}", "Baseline", "Its {}", "Difference", "Learning rates")


def table(compared: Sequence[Compared]) -> str:
    """Write the recorded comparisons of one question."""
    known = benchmarks()
    recorded = {name: read_rows(known[name].results) for name in {name for name, *_ in compared}}
    rows = [row for one in compared if (row := cells(one, known[one[0]], recorded[one[0]]))]
    word = "loss" if all(known[name].score == "heldout_loss" for name in recorded) else "score"
    return table_in_markdown([heading.format(word) for heading in HEADINGS], rows) + "\n"


def cells(compared: Compared, benchmark: Benchmark, rows: Sequence[Row]) -> list[str]:
    """Write a comparison; empty where it is not recorded."""
    name, condition, variant, baseline = compared
    contrast = Contrast(name, variant, "lower", baseline, [condition], score=benchmark.score)
    evidence = Evidence(contrast, *contrast.scores(benchmark, rows), design_of(contrast, benchmark))
    (found,) = judge_contrasts([evidence])
    if found.difference is None:
        return []
    chosen = [learning_rates(rows, condition, one) for one in (variant, baseline)]
    return [
        f"{name}, {condition}",
        f"`{variant}`",
        spread(found.variant),
        f"`{baseline}`",
        spread(found.baseline),
        tested(found.difference, found.p),
        " and ".join(filter(None, chosen)),
    ]


def learning_rates(rows: Sequence[Row], condition: str, variant: str) -> str:
    """Write the learning rate that a sweep has chosen; empty where it was given."""
    own = [row for row in rows if (row.condition, row.variant) == (condition, variant)]
    found = sorted({row.settings["learning_rate"] for row in own if "learning_rate" in row.settings})
    return ", ".join(f"{rate:g}" for rate in found)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for name, compared in TABLES.items():
        text = replace_part(text, f"{COMMAND}: {name}", table(compared))
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"Wrote {PAGE}")
