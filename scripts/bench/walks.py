"""Count the code that one use of the library runs: files, functions and lines of zoo, registry and converters.

    python scripts/bench/walks.py            # all walks
    python scripts/bench/walks.py forward --functions

The second call counts, after imports and caches. Comprehensions and lambdas count as lines of their function.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import zoo
from zoo.analysis.source_listing import function_of, is_function
from zoo.fast.preallocated_cache import CACHE_NAME

ROOT = Path(zoo.__file__).parents[1]
FOLDERS = tuple(f"{ROOT / folder}/" for folder in ("zoo", "registry", "converters"))
NAME = "gpt2-style@tiny"


@dataclass(frozen=True)
class Walk:
    """The code that a call ran."""

    lines: dict[CodeType, set[int]]  # Numbers of the lines that ran, by function

    @property
    def functions(self) -> list[CodeType]:
        """The functions, in the order of their first calls."""
        return list(filter(is_function, self.lines))

    @property
    def files(self) -> int:
        """The number of files."""
        return len({code.co_filename for code in self.lines})

    @property
    def lines_run(self) -> int:
        """The number of lines that ran."""
        return len({(code.co_filename, line) for code, lines in self.lines.items() for line in lines})

    @property
    def lines_of_code(self) -> int:
        """The number of lines of the functions, without docstrings, comments and blank lines."""
        return sum(function_of(code).lines_of_code for code in self.functions)


def walk_of(call: Callable[[], Any]) -> Walk:
    """Run a call twice, and note what the second one runs."""
    lines: dict[CodeType, set[int]] = defaultdict(set)

    def note_line(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            lines[frame.f_code].add(frame.f_lineno)
        return note_line

    def note_call(frame: FrameType, event: str, argument: object) -> Any:
        return note_line if frame.f_code.co_filename.startswith(FOLDERS) else None

    call()
    before = sys.gettrace()
    sys.settrace(note_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return Walk(dict(lines))


def forward(files: ExitStack) -> Callable[[], Any]:
    """A forward of a small GPT-2."""
    model, ids = zoo.build(NAME).eval(), torch.arange(3, 11)[None]
    return torch.no_grad()(lambda: model(input_ids=ids))


def cached_step(files: ExitStack) -> Callable[[], Any]:
    """A step of a decoder with a cache."""
    model, ids = zoo.build(NAME).eval(), torch.arange(3, 11)[None]
    with torch.no_grad():
        cache = getattr(model(input_ids=ids, use_cache=True), CACHE_NAME)
    return torch.no_grad()(lambda: model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True))


def build(files: ExitStack) -> Callable[[], Any]:
    """`zoo.build`."""
    return lambda: zoo.build(NAME)


def load(files: ExitStack) -> Callable[[], Any]:
    """`zoo.load` of a folder."""
    folder = files.enter_context(tempfile.TemporaryDirectory())
    zoo.build(NAME).save_pretrained(folder)
    return lambda: zoo.load(folder)


def convert(files: ExitStack) -> Callable[[], Any]:
    """`zoo.load` of a folder with transformers' GPT-2."""
    folder = files.enter_context(tempfile.TemporaryDirectory())
    sizes = {"vocab_size": 100, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).save_pretrained(folder)
    return lambda: zoo.load(folder)


WALKS = {make.__name__.replace("_", " "): make for make in (forward, cached_step, build, load, convert)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", default=list(WALKS), help=f"of {', '.join(WALKS)}")
    parser.add_argument("--functions", action="store_true", help="list the functions of each walk")
    arguments = parser.parse_args()
    print(f"{'walk':<14}{'files':>8}{'functions':>12}{'lines run':>12}{'their code':>13}")
    for name in arguments.walks:
        with ExitStack() as files:
            walk = walk_of(WALKS[name](files))
        print(f"{name:<14}{walk.files:>8}{len(walk.functions):>12}{walk.lines_run:>12}{walk.lines_of_code:>13}")
        for code in walk.functions if arguments.functions else ():
            print(f"    {code.co_filename.removeprefix(f'{ROOT}/')}:{code.co_firstlineno} {code.co_name}")


if __name__ == "__main__":
    main()
