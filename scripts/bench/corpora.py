"""Cost of preparing and reading a corpus: processor time, memory, and speed next to raw `tokenizers`.

    python scripts/bench/corpora.py books [--limit 20M] [--rounds 3] [--vocab-size 8000] [-o found.json]
    python scripts/bench/corpora.py books --document    # and put the table into docs/performance.md
    python scripts/bench/corpora.py pairs --rows 1000000

`books` prepares the training part of the corpus (`zoo data get books` first) on one core and on all, and encodes the
same text by `encode_batch_fast` and by a loop over documents like nanoGPT's prepare.py; then it times the first step on
the prepared text after imports, and reads 10,000 batches. `pairs` writes a file of sentence pairs, and trains a step of
translation on it. Memory is that of all processes without mapped files, above that of a process with the same imports.
Rows take turns in every round, and the fastest round of each counts. Give it an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from documenting import described, document, to_table

SAMPLED_SECONDS = 0.05
START = "zoo data prepare, one line (what starting costs)"
IMPORTS = "import zoo.training.training, zoo.data.corpora.preparing, zoo.data.tasks.prepared"

PREPARE = """
import sys
from zoo.data.corpora.preparing import prepare
from zoo.data.tokenizers import load_tokenizers

source, tokenizer, out, jobs = sys.argv[1:]
prepare(source, load_tokenizers(tokenizer), out, jobs=int(jobs), progress=False)
"""
ENCODE = """
import sys
from zoo.data.corpora.sources import Piece, parts_of
from zoo.data.corpora.sources import cut
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
waiting, length = [], 0
for part in parts_of(Piece(sys.argv[1]), None, print):
    for text in cut(part.text):
        waiting.append(text)
        length += len(text)
        if length > 1 << 20:
            tokenizer.encode_batch_fast(waiting, add_special_tokens=False)
            waiting, length = [], 0
tokenizer.encode_batch_fast(waiting, add_special_tokens=False)
"""
LOOP = """
import json
import sys
import numpy as np
from tokenizers import Tokenizer

tokenizer, ids = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json"), []
for line in open(sys.argv[1], encoding="utf-8"):
    found = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids
    ids.append(np.array([*found, 0], np.uint16))
row = np.memmap(sys.argv[3], np.uint16, "w+", shape=(sum(map(len, ids)),))
place = 0
for document in ids:
    row[place : place + len(document)] = document
    place += len(document)
row.flush()
"""
FIRST_STEP = """
import sys
import time
import zoo
import zoo.training.training
import torch, transformers
from transformers import TrainerCallback

began = time.process_time()

class Stop(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        print("seconds", time.process_time() - began)

sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
zoo.train("gpt2-style", "language-modeling", data=sys.argv[1], settings=sizes, max_steps=1, scored=False,
          per_device_train_batch_size=1, progress=False, callbacks=[Stop()], use_cpu=True)
"""
READ = """
import sys
import psutil
from torch.utils.data import DataLoader
from zoo.data.tasks import find_task, load_tokenizers
from zoo.training.sampling import ShuffledBlocks

task, tokenizers = find_task("language-modeling:block_size=1024"), load_tokenizers(sys.argv[1])
blocks = task.encode(task.load(sys.argv[1]).train, tokenizers, training=True)
order, batch = ShuffledBlocks(len(blocks), 8, seed=0), int(sys.argv[2])
loader, read = DataLoader(blocks, 8, sampler=order, collate_fn=task.collator(tokenizers)), 0
while read < batch:
    for _ in loader:
        read += 1
        if read in (100, batch // 10, batch):
            memory = psutil.Process().memory_full_info()
            print(read, memory.uss, memory.rss)
        if read == batch:
            break
"""
TRANSLATE = """
import sys
import zoo

sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
zoo.train("pre-norm", "translation", data=sys.argv[1], settings=sizes, max_steps=1, scored=False,
          tokenizer="bpe:vocab_size=4000", per_device_eval_batch_size=100, progress=False, use_cpu=True)
"""


class Measured:
    """Runs a piece of Python in a process, with the memory and the processor time of all of its processes.

    Attributes:
        output: What it printed.
        seconds: By the clock.
        cpu: Seconds of the processor.
        memory: The most bytes at a moment.
    """

    def __init__(self, code: str, *arguments: object, **variables: str) -> None:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **variables}
        before, began, self.memory = os.times(), time.perf_counter(), 0
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        watcher = threading.Thread(target=self.watch, args=(psutil.Process(process.pid),))
        watcher.start()
        self.output = process.communicate()[0]
        self.seconds = time.perf_counter() - began
        watcher.join()
        after = os.times()
        self.cpu = after.children_user + after.children_system - before.children_user - before.children_system
        if process.returncode:
            raise SystemExit(f"{' '.join(command[2:])[:200]} failed")

    def watch(self, process: psutil.Process) -> None:
        """Take the most memory of a process and its children until it ends."""
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            total = 0
            with suppress(psutil.NoSuchProcess):  # when it ends
                total = sum(anonymous(one.pid) for one in (process, *process.children(recursive=True)))
            self.memory = max(self.memory, total)
            time.sleep(SAMPLED_SECONDS)


def anonymous(process: int) -> int:
    """Bytes of a process that no file has; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def number(text: str) -> int:
    """Read a number of bytes such as 20M."""
    return int(float(text.rstrip("KMG")) * {"K": 10**3, "M": 10**6, "G": 10**9}.get(text[-1], 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("books", "pairs"))
    parser.add_argument("--limit", type=number, help="bytes of the books to take")
    parser.add_argument("--rounds", type=int, default=1, help="times that each row of `books` is measured")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="sentence pairs")
    parser.add_argument("-o", "--output", type=Path, help="write what was measured as JSON")
    parser.add_argument("--document", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "books":
            measured: Any = books(Path(folder), given.limit, given.rounds, given.vocab_size, given.batches)
            text = of_books(measured)
        else:
            measured = pairs(Path(folder), given.rows)
            text = of_pairs(measured)
    print(text, end="")
    if given.output:
        given.output.write_text(json.dumps(measured, indent=1) + "\n")
    if given.document:
        document(f"scripts/bench/corpora.py {given.what}", text)


def books(folder: Path, limit: int | None, rounds: int, vocab_size: int, batches: int) -> dict[str, Any]:
    """Measure the corpus of books, or the first of them."""
    from zoo.data.corpora import get
    from zoo.data.tasks import find_task

    part, line = folder / "part", folder / "line"
    part.mkdir()
    line.mkdir()
    (line / "train.jsonl").write_text('{"text": "One line."}\n')
    size = 0
    with (get("books") / "train.jsonl").open("rb") as lines, (part / "train.jsonl").open("wb") as out:
        for row in lines:
            if limit is not None and size + len(row) > limit and size:
                break
            out.write(row)
            size += len(row)
    for corpus in (part, line):
        (corpus / "validation.jsonl").write_text('{"text": "A document that is held out."}\n')
    source, tokenizer = part / "train.jsonl", folder / "tokenizer"
    with source.open(encoding="utf-8") as lines:
        texts: Any = {"text": [json.loads(row)["text"][:100_000] for row in lines]}
    find_task("language-modeling").train_tokenizers(texts, kind="bpe", vocab_size=vocab_size).save(tokenizer)
    one, several = {"TOKENIZERS_PARALLELISM": "false"}, {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "2"}
    base = Measured(IMPORTS + "\nimport time; time.sleep(0.5)").memory
    commands: dict[str, tuple[Any, ...]] = {
        "encode_batch_fast, one core": (ENCODE, source, tokenizer, one),
        "zoo data prepare, one process": (PREPARE, part, tokenizer, folder / "one", 1, {}),
        "encode_batch_fast, two cores": (ENCODE, source, tokenizer, several),
        "zoo data prepare, two processes": (PREPARE, part, tokenizer, folder / "two", 2, {}),
        START: (PREPARE, line, tokenizer, folder / "least", 1, {}),
        "a loop over documents (nanoGPT's prepare.py)": (LOOP, source, tokenizer, folder / "x.bin", one),
    }
    runs: dict[str, Measured] = {}
    for _ in range(rounds):
        for name, (*command, variables) in commands.items():
            if PREPARE in command:
                shutil.rmtree(command[3], ignore_errors=True)
            run = Measured(*command, **variables)
            runs[name] = min(runs.get(name, run), run, key=lambda one: one.seconds)
    first = [float(Measured(FIRST_STEP, folder / "two").output.split()[-1]) for _ in range(2)]
    read = [list(map(int, line.split())) for line in Measured(READ, folder / "two", batches).output.splitlines()]
    return {
        "bytes": size,
        "rows": {
            name: {"seconds": run.seconds, "cpu": run.cpu, "memory": run.memory - base} for name, run in runs.items()
        },
        "first_step": {"with all shards hashed": first[0], "later": first[1]},
        "batches": [{"read": count, "own": own, "resident": resident} for count, own, resident in read],
    }


def of_books(found: Mapping[str, Any]) -> str:
    size = found["bytes"] / 1e6
    rows = [
        [
            name,
            f"{one['seconds']:.1f}",
            f"{one['cpu']:.1f}",
            "" if name == START else f"{size / one['seconds']:.2f}",
            f"{one['memory'] / 1e6:.0f}",
        ]
        for name, one in found["rows"].items()
    ]
    table = to_table(["", "seconds", "s of the processor", "MB/s", "MB above imports"], rows)
    steps = ", ".join(f"{seconds:.2f} s ({name})" for name, seconds in found["first_step"].items())
    read = ", ".join(f"{one['own'] / 1e6:.1f} MB after {one['read']:,}" for one in found["batches"])
    return (
        f"{described()}; {size:.0f} MB of `books`\n\n{table}\n"
        f"First step after imports, seconds of the processor: {steps}. Memory of a process that reads batches: {read}."
        "\n"
    )


def pairs(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    """Measure a step of translation on files of sentence pairs, and on one of a hundredth of them."""
    import pyarrow.csv  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(5000)]
    files = []
    for count in (rows // 100, rows):
        files.append(folder / f"{count}.tsv")
        with files[-1].open("w") as out:
            out.write("source\ttarget\n")
            for row in range(count):
                sides = (" ".join(drawn.choices(words, k=drawn.randint(3, 9))) for _ in range(2))
                out.write(f"{row} {chr(9).join(sides)}\n")
    table = pyarrow.csv.read_csv(files[-1], parse_options=pyarrow.csv.ParseOptions(delimiter="\t"))
    files.append(files[-1].with_suffix(".parquet"))
    pyarrow.parquet.write_table(table, files[-1])
    found = {}
    for file in files:
        run = Measured(TRANSLATE, file, ZOO_DATA=str(folder / "data"))
        costs = {"bytes": file.stat().st_size, "seconds": run.seconds, "cpu": run.cpu, "memory": run.memory}
        found[f"{int(file.stem):,} in {file.suffix}"] = costs
    return found


def of_pairs(found: Mapping[str, Mapping[str, float]]) -> str:
    rows: Sequence[Sequence[str]] = [
        [name, f"{one['bytes'] / 1e6:.1f}", f"{one['cpu']:.1f}", f"{one['memory'] / 1e6:.0f}"]
        for name, one in found.items()
    ]
    table = to_table(["pairs", "MB of the file", "s of the processor", "MB of memory at most"], rows)
    return f"{described()}; a step of translation\n\n{table}"


if __name__ == "__main__":
    main()
