"""A comparison as files: results.csv, results.md, results.tex, and report.html."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from zoo.base.errors import UnknownNameError
from zoo.base.files import write_file
from zoo.base.printed import printable, table_in_markdown

from ..results.comparison import Comparison
from ..results.summary import ComparisonSummary, summarize
from ..results.units import counted
from .findings import is_tested, sentences
from .formatting import span, table, to_csv
from .report.page import to_html

CSV, MARKDOWN, LATEX, HTML = "results.csv", "results.md", "results.tex", "report.html"

LATEX_COSTS = ("parameters", "flops_per_token", "train_tokens_per_second")
"""Metrics in the table for LaTeX in addition to the main score."""

ESCAPES = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "<": "$<$",
        ">": "$>$",
    }
)


def write_files(
    comparison: Comparison, folder: str | Path | None = None, tex_columns: Sequence[str] | None = None
) -> list[Path]:
    """Write everything that shows a comparison.

    Args:
        folder: Where to, by default the comparison's own folder.
        tex_columns: The metrics in the table for LaTeX, by their names in results.csv; by default the main score, the
            parameters, FLOPs per token and the speed of training.

    Returns:
        The files: a table of runs, a table of variants for Markdown and one for LaTeX, and the report.

    Raises:
        UnknownNameError: When the metric is unknown.
    """
    folder = Path(comparison.folder if folder is None else folder)
    summary = summarize(comparison)
    texts = {
        CSV: to_csv(summary),
        MARKDOWN: to_markdown(summary),
        LATEX: to_latex(summary, tex_columns),
        HTML: to_html(summary),
    }
    for name, text in texts.items():
        write_file(folder / name, text)
    return [folder / name for name in texts]


def to_markdown(summary: ComparisonSummary) -> str:
    rows = table(summary, summary.metrics)
    lines = escaped_table(rows, [":--", *("--:" for _ in rows[0][1:])])
    words = [f"- {markdown(sentence)}" for sentence in sentences(summary)]
    command = printable(shlex.join(summary.comparison.command))  # a path may have the end of the block in it
    seeds = span([len(row.runs) for row in summary.rows])
    numbers = (counted(len(summary.rows), "variant"), f"{seeds} seed{'' if seeds == '1' else 's'}")
    title = f"# {markdown(summary.comparison.task)}: {', '.join(numbers)}"
    sheet = [*fairness_lines(summary), ""]
    return "\n".join([title, "", lines, "", *words, "", *sheet, "```console", f"$ {command}", "```", ""])


def fairness_lines(summary: ComparisonSummary) -> list[str]:
    """Write the fairness sheet as Markdown: what is shared, and a column a variant."""
    sheet = summary.fairness
    rows = [["", *sheet.variants]]
    rows += [[topic, *(own.get(topic, "") for own in sheet.variants.values())] for topic in sheet.topics]
    listed = (f"- {topic}: {markdown(text)}" for topic, text in sheet.shared.items())
    return ["## Fairness", "", *listed, "", escaped_table(rows, [":--" for _ in rows[0]])]


def escaped_table(rows: Iterable[Sequence[str]], rule: Sequence[str]) -> str:
    headings, *others = ([markdown(cell).replace("|", "\\|") for cell in row] for row in rows)
    return table_in_markdown(headings, others, rule)


def markdown(text: str) -> str:
    """Escape a text for Markdown: on one line, without HTML."""
    return printable(text).replace("<", "&lt;")


def to_latex(summary: ComparisonSummary, columns: Sequence[str] | None = None) -> str:
    """Write one row a variant as a table of the package booktabs. Arguments as of `write_files`."""
    metrics = {metric.key: metric for metric in summary.metrics}
    usual = (summary.main.key if summary.main else summary.comparison.main_score, *LATEX_COSTS)
    UnknownNameError.check(*(columns or ()), valid=metrics, kind="column", owner=LATEX)
    shown = [metrics[name] for name in columns or usual if name in metrics]
    rows = [[cell.translate(ESCAPES) for cell in row] for row in table(summary, shown)]
    header, *body = (f"    {' & '.join(row)} \\\\" for row in rows)
    limit, correction = summary.design.limit, "after Holm's correction"
    if limit is not None:
        correction = f"that are repeated with up to {limit} seeds (Lan and DeMets), corrected for all looks"
    elif summary.design.margin is not None:
        correction = "after Bonferroni's correction"
    seeds = span([len(row.runs) for row in summary.rows])
    numbers = "One seed" if seeds == "1" else f"Mean $\\pm$ standard deviation over {seeds} seeds"
    tests = f"by paired $t$-tests {correction}" if is_tested(summary) else "are not tested"
    caption = f"{numbers}; differences from {summary.comparison.baseline.translate(ESCAPES)} {tests}."
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{caption}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
        r"    \toprule",
        header,
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        *(rf"  \par\footnotesize {note.translate(ESCAPES)}" for note in notes(summary)),
        r"\end{table}",
        *(f"% {line}" for line in "\n".join(fairness_lines(summary)).split("\n")),
    ]
    return "% \\usepackage{booktabs}\n" + "\n".join(lines) + "\n"


def notes(summary: ComparisonSummary) -> Iterator[str]:
    """Write what belongs to the verdicts, a line a variant."""
    for name, qualified in summary.fairness.qualifications.items():
        if qualified:
            yield f"{name}: {'; '.join(qualified)}."
