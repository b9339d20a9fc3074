"""`zoo predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.base.printed import printable

from .output import hide_progress_bars, write_json
from .parameters import columns_option
from .texts import read_lines, texts_options

if TYPE_CHECKING:
    from zoo.training.predict import Label


TABLES = (".csv", ".tsv")  # Suffixes of files with a header and columns


@click.command("predict")
@texts_options
@columns_option
def predict(
    model: str,
    texts: tuple[str, ...],
    file: Path | None,
    columns: list[str | int] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Let a trained model label texts or every word of them, or guess masked words.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights (zoo weights), or a repository on the Hub.
    Texts come from the command line, from --file, or from standard input, one a line. A text's line has its label, the
    probability, and the text; with token classification a line has every word with its label after it,
    and with labels of positions (classifier_positions) every position's number. A masked language model guesses the
    words at the tokenizer's mask, such as <mask>: the best one, its probability, and the text.

    A .csv or .tsv file is read as a table with a header: --columns names the column of the texts, by default one named
    like a text, else the first that does not number rows. The output is such a table too: text, prediction,
    probability.
    """
    suffix = "" if texts or file is None else file.suffix.lower()
    if columns is not None and suffix not in TABLES:
        raise click.BadOptionUsage("columns", f"--columns needs a --file with columns: {' or '.join(TABLES)}")
    if file is not None and suffix in TABLES:
        from zoo.data.tasks.reading import read_table
        from zoo.data.tasks.tables import Kind

        lines = read_table(file, columns, kinds=(Kind.TEXT,)).column(0)
    else:
        lines = list(read_lines(texts, file))

    from zoo.training.predict import predict as predict_labels

    hide_progress_bars()
    labelled = predict_labels(model, lines, **options)
    if as_json:
        write_json([label.to_dict() for label in labelled])
        return
    if suffix in TABLES:
        from zoo.training.answers import table_text

        rows = (row_of(label) for label in labelled)
        click.echo(table_text(("text", "prediction", "probability"), rows, suffix), nl=False)
        return
    for label in labelled:
        click.echo(printable(line_of(label), keep="\t"))


def row_of(label: Label) -> tuple[str, str, str]:
    if label.label is None:
        return label.text, " ".join(word.label or "-" for word in label.words), ""
    return label.text, label.label, "" if label.score is None else f"{label.score:.4f}"


def line_of(label: Label) -> str:
    if label.label is None:
        return " ".join(word.text if word.label is None else f"{word.text}/{word.label}" for word in label.words)
    score = [] if label.score is None else [f"{label.score:.4f}"]
    return "\t".join([label.label, *score, label.text])
