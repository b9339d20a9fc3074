"""`zoo generate` and `zoo predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from zoo.base.printed import printable

from .output import for_stdout, hide_progress_bars, write_json
from .parameters import columns_option, generation_option, once, read_lines, texts_options

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, TextStreamer

    from zoo.training.generation import Generation
    from zoo.training.predict import Label


@click.command("generate")
@click.option("--num-beams", type=click.IntRange(1), help="Beam search of this width.")
@click.option("--max-new-tokens", type=click.IntRange(1), help="How long an output may be.")
@click.option("--do-sample", is_flag=True, default=None, help="Draw tokens instead of taking the best.")
@click.option("--temperature", type=float, help="Of sampling: below 1 safer, above 1 bolder.")
@click.option("--top-k", type=int, help="Of sampling: draw among the K best tokens only.")
@click.option("--top-p", type=float, help="Of sampling: draw among the best tokens of this share only.")
@click.option(
    "--num-return-sequences",
    type=click.IntRange(1),
    help="How many outputs a text, each with its score: its mean log-probability a token.",
)
@generation_option
@click.option("--seed", type=int, help="Makes sampling reproducible; 0 for models that sample by default.")
@texts_options
def generate(
    model: str,
    texts: tuple[str, ...],
    file: Path | None,
    generation: tuple[tuple[str, Any], ...],
    seed: int | None,
    batch_size: int,
    device: str | None,
    engine: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Let a trained model write: translations by an encoder-decoder, continuations by a language model.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights (zoo weights), a repository on the Hub, or an
    export for another engine. Texts come from the command line, from --file, or from standard input, one a line.
    Outputs come in the same order, each followed by a line break, and an empty line for an empty line. An output may
    itself have line breaks; --json keeps outputs apart.
    """
    lines = read_lines(texts, file)
    options = once([*((name, value) for name, value in flags.items() if value is not None), *generation])

    from zoo.registry import Task
    from zoo.training.generation import generate as generate_texts
    from zoo.training.generation import load_checkpoint

    hide_progress_bars()
    loaded, tokenizers = load_checkpoint(model, device=device, engine=engine, task=Task.CAUSAL_LM)
    own = getattr(loaded, "generation_config", None)
    several, searches = (wants(options, own, name) for name in ("num_return_sequences", "num_beams"))
    streams = sys.stdout.isatty() and len(lines) == 1 and not as_json and not several and not searches
    streamer = streamer_to_stdout(tokenizers.target) if streams else None
    asked = [line for line in lines if texts or line.strip()]
    samples = options.get("do_sample", own is not None and own.do_sample)
    if seed is not None and own is not None and not samples:
        raise click.UsageError(f"--seed {seed} changes nothing without sampling: add --do-sample, or leave it out")
    if seed is None and "do_sample" not in options and samples:
        seed = 0  # a model that samples by default writes the same every time
    options |= {"batch_size": batch_size, "seed": seed, "streamer": streamer, "scores": several or as_json}
    progress = len(asked) > batch_size and sys.stderr.isatty()
    written = generate_texts(loaded, asked, tokenizer=tokenizers, progress=progress, **options)
    if as_json:
        write_json([generation.to_dict() for generation in written])
    elif not streams:
        rest = iter(written)
        for line in lines:
            show(next(rest) if texts or line.strip() else None, several=several)


def streamer_to_stdout(tokenizer: PreTrainedTokenizerBase) -> TextStreamer:
    """Print an output while it is generated, without what a terminal would obey."""
    from transformers import TextStreamer

    from zoo.serving.text import GrowingText

    growing = GrowingText(0, cast("PreTrainedTokenizerFast", tokenizer), (), (), ())

    class Escaping(TextStreamer):
        seen = False  # Whether the prompt was put, which comes first

        def put(self, value: Tensor) -> None:
            tokens = value.flatten().tolist() if self.seen else []
            self.seen = True
            for piece in filter(None, map(growing.add, tokens)):
                self.on_finalized_text(piece.text)

        def end(self) -> None:
            self.on_finalized_text(growing.end("stop").text, stream_end=True)

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            super().on_finalized_text(for_stdout(text), stream_end)

    return Escaping(tokenizer, skip_prompt=True, skip_special_tokens=True)


def wants(options: dict[str, Any], own: Any, name: str) -> bool:
    """Whether more than one is asked for, by options or by the model's own settings."""
    number = options.get(name, getattr(own, name, None))
    return isinstance(number, int) and number > 1


def show(generation: Generation | None, *, several: bool) -> None:
    """Print what was written for one text, None for an empty line."""
    if generation is None:
        click.echo()
        return
    for candidate in generation.candidates:
        text = for_stdout(candidate.text)
        click.echo(f"{candidate.score:.4f}\t{text}" if several else text)


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
