"""Speed and loss of quality of every engine that is installed, by how weights are stored, in one table.

    python scripts/bench/engines.py                                        # weights that ship with the zoo
    python scripts/bench/engines.py my-model --only "openvino*" torch
    python scripts/bench/engines.py -o scripts/bench/engines.json          # row by row, as docs/performance.md has it
    python scripts/bench/engines.py -o scripts/bench/engines.json --quality  # losses alone, on a machine that is busy
    python scripts/bench/engines.py --table                                # prints what is recorded there

With -o, what was measured by the same settings is not measured again: an interrupted command goes on. --quality is the
other way round: it measures losses and texts again, and keeps the speeds that are there. Every engine gets the same
checkpoint, and works on the examples that its training held out. "Loss" is the mean cross-entropy of a token of theirs,
"change" how far it is from torch's; "same texts" is the share of greedy outputs that are those of torch in float32.
Processor's time counts all threads; the load of the machine is in every row.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

import zoo
from zoo.analysis.environment import device_name
from zoo.building.weights import locate
from zoo.converters import ExportOptions
from zoo.converters.errors import ExportError, MissingExtraError
from zoo.converters.exporting import choose
from zoo.data.tokenizers import load_tokenizers
from zoo.training.evaluate import evaluate, examples_of_run
from zoo.training.generation import ENGINES, ExportEngine, generate
from zoo.training.generation.engines import TORCH, TORCH_INT8
from zoo.training.record import saved_run

MODELS = ("gpt2-style.char-en", "vanilla.en-pt")
REFERENCE = "torch"
RECORD = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Row:
    """One engine with one way to store weights."""

    model: str  # What ran
    engine: str  # Where
    dtype: str  # How weights are stored
    megabytes: float  # The size of what was exported, or of the weights in torch
    same: float  # The share of texts that are torch's in float32
    loss: float  # Cross-entropy a token
    # Written greedily, one text at a time, by the clock; None as long as nothing was timed
    tokens_a_second: float | None = None
    processor: float | None = None  # Seconds of processor's time for a thousand tokens
    load: float | None = None  # Processes that wanted to run, in the minute up to the end of the measurement
    measured_on: str = ""  # The day on which it was timed

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.engine, self.dtype


class Found:
    """Measurements so far, in a file if one is given.

    Args:
        output: A JSON file, None to keep nothing.
        settings: By what it is measured.
    """

    def __init__(self, output: Path | None, settings: dict[str, Any]) -> None:
        self.output, self.settings, self.rows = output, settings, dict[tuple[str, str, str], Row]()
        if output is None or not output.exists():
            return
        saved = json.loads(output.read_text(encoding="utf-8"))
        if saved["settings"] != settings:
            sys.exit(f"{output} was measured by other settings: {saved['settings']}, now {settings}")
        rows = (Row(**row) for row in saved["rows"])
        self.rows = {row.key: row for row in rows}

    def has_speeds(self, key: tuple[str, str, str]) -> bool:
        """Whether a row was timed already."""
        return key in self.rows and self.rows[key].tokens_a_second is not None

    def add(self, row: Row) -> None:
        """Keep a row, in the place of one that lacked something."""
        self.rows[row.key] = row
        print(to_markdown([row], self.settings).splitlines()[-1], flush=True)
        if self.output is not None:
            rows = [asdict(row) for row in self.rows.values()]
            kept = {"settings": self.settings, "rows": rows}
            self.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="checkpoints, or names of weights")
    parser.add_argument("--only", nargs="+", default=["*"], help="engines, or ENGINE:DTYPE, with wildcards")
    parser.add_argument("--texts", type=int, default=32, help="how many are written")
    parser.add_argument("--examples", type=int, default=128, help="how many the loss is computed on")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--quality", action="store_true", help="measure no speeds, and keep those that are recorded")
    parser.add_argument("-o", "--output", type=Path, help="record what is measured in this JSON file")
    parser.add_argument("--table", action="store_true", help="print what is recorded, and measure nothing")
    return parser.parse_args()


def ways() -> Iterator[tuple[str, str]]:
    """Every engine with every way in which it stores weights."""
    yield from ((TORCH, "float32"), (TORCH_INT8, "int8"))
    for name in ENGINES:
        engine = ENGINES.get(name)
        if isinstance(engine, ExportEngine) and engine.exact:
            yield from ((name, dtype) for dtype in engine.target.dtypes or ("float32",))


def opened(source: Path, name: str, dtype: str, scratch: Path) -> tuple[PreTrainedModel, float]:
    """Load a checkpoint for an engine; the model, and its size in MB."""
    model, engine = zoo.load(source), ENGINES.get(name)
    if not isinstance(engine, ExportEngine):
        size = model.num_parameters() * (1 if dtype == "int8" else 4)
        return engine.run(model, source), size / 1e6
    target = engine.target
    plan = choose(model, target.name)
    options = ExportOptions(dtype if target.dtypes else None, source)
    target.write(model, scratch, plan, options)
    size = sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file())
    return target.load(scratch), size / 1e6


def measure(name: str, arguments: argparse.Namespace, found: Found) -> None:
    """Run one checkpoint in every engine that can hold it, for the rows that are not there."""
    wanted = [
        (engine, dtype)
        for engine, dtype in ways()
        if any(fnmatch.fnmatchcase(way, only) for way in (engine, f"{engine}:{dtype}") for only in arguments.only)
        and (arguments.quality or not found.has_speeds((name, engine, dtype)))
    ]
    if not wanted:
        return
    source = locate(name)
    run, tokenizers = saved_run(source), load_tokenizers(source)
    assert run is not None, f"{name} does not say what it was trained on"
    reference = zoo.load(source)
    task = run.recipe.data_task().fitted_to(reference.config)
    examples, _ = examples_of_run(run, task, name)
    column = examples.column_names[0]
    texts = [text if reference.config.is_encoder_decoder else text[:16] for text in examples[column][: arguments.texts]]
    held_out = examples.select(range(min(arguments.examples, len(examples))))
    options: dict[str, Any] = dict(tokenizer=tokenizers, batch_size=1, max_new_tokens=arguments.new_tokens)
    expected = [written.text for written in generate(reference, texts, **options)]
    for engine, dtype in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                model, megabytes = opened(source, engine, dtype, Path(scratch))
            except (ExportError, MissingExtraError) as error:
                print(f"{name} in {engine}, {dtype}: {error}", flush=True)
                continue
            if not arguments.quality:
                generate(model, texts[:2], **options)
            began, worked = time.perf_counter(), time.process_time()
            outputs = [written.text for written in generate(model, texts, **options)]
            seconds, work = time.perf_counter() - began, time.process_time() - worked
            given = dict(data=held_out, tokenizer=tokenizers, batch_size=16, n_bootstrap=1)
            loss = evaluate(model, run.recipe.task, **given).loss
        same = sum(one == other for one, other in zip(outputs, expected, strict=True)) / len(outputs)
        row = Row(name, engine, dtype, megabytes, same, loss)
        if arguments.quality:
            found.add(replace(found.rows.get(row.key, row), megabytes=megabytes, same=same, loss=loss))
            continue
        tokens = sum(len(tokenizers.target(text)["input_ids"]) for text in outputs)
        row = replace(row, tokens_a_second=tokens / seconds, processor=1000 * work / tokens)
        found.add(replace(row, load=os.getloadavg()[0], measured_on=date.today().isoformat()))


def to_markdown(rows: Iterable[Row], settings: dict[str, Any]) -> str:
    """Write the table, with a line above on how it was measured."""
    rows = list(rows)
    speeds = ("tokens/s", "processor's s for 1000", "load", "timed on")
    titles = ("model", "engine", "weights", "MB", "same texts", "loss", "change", *speeds)
    about = ", ".join(f"{name} {value}" for name, value in settings.items())
    lines = [about, "", f"| {' | '.join(titles)} |", f"|---|---|---|{'---:|' * (len(titles) - 3)}"]
    exact = {row.model: row.loss for row in rows if row.engine == REFERENCE}
    for row in rows:
        change = f"{row.loss - exact[row.model]:+.4f}" if row.model in exact else ""
        quality = (f"{row.megabytes:.2f}", f"{row.same:.0%}", f"{row.loss:.4f}", change)
        timed = ((row.tokens_a_second, ".0f"), (row.processor, ".1f"), (row.load, ".1f"))
        numbers = ("" if value is None else format(value, form) for value, form in timed)
        lines.append(f"| {' | '.join((*row.key, *quality, *numbers, row.measured_on))} |")
    return "\n".join(lines) + "\n"


def table(recorded: Path = RECORD) -> str:
    saved = json.loads(recorded.read_text(encoding="utf-8"))
    return to_markdown([Row(**row) for row in saved["rows"]], saved["settings"])


def main() -> None:
    arguments = parse_arguments()
    if arguments.table:
        print(table(arguments.output or RECORD))
        return
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    settings = {
        "machine": device_name(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **{name: getattr(arguments, name) for name in ("texts", "examples", "new_tokens")},
    }
    found = Found(arguments.output, settings)
    for name in arguments.models:
        measure(name, arguments, found)
    print(to_markdown(found.rows.values(), settings))


if __name__ == "__main__":
    main()
