"""`zoo predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .importing import without_collecting
from .output import write_json
from .texts import read_lines, texts_options

if TYPE_CHECKING:
    from zoo.labelling import Label


@click.command("predict")
@texts_options
def predict(
    model: str,
    texts: tuple[str, ...],
    file: Path | None,
    batch_size: int,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> None:
    """Let a trained model label texts, or every word of them.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights (zoo weights), or a repository on the Hub.
    Texts come from the command line, from --file, or from standard input, one a line. A text's line has its label, the
    probability, and the text; with token classification a line has every word with its label behind it,
    and with labels of positions (classifier_positions) every position's number.
    """
    lines = list(texts) if texts else list(read_lines(file))

    with without_collecting():
        from transformers.utils import logging

        from zoo.labelling import predict as predict_labels

    logging.disable_progress_bar()
    labelled = predict_labels(model, lines, batch_size=batch_size, device=device, engine=engine)
    if as_json:
        write_json([label.to_dict() for label in labelled])
        return
    for label in labelled:
        click.echo(line_of(label))


def line_of(label: Label) -> str:
    """Write what a model says of a text.

    Returns:
        The label, its probability if it has one, and the text, with tabs between them; or words with their labels.
    """
    if label.label is None:
        return " ".join(f"{word.text}/{word.label}" for word in label.words)
    score = [] if label.score is None else [f"{label.score:.4f}"]
    return "\t".join([label.label, *score, label.text])
