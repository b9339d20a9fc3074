"""Kills training at random moments, lets it go on, and looks whether anybody could tell.

    python kills.py FOLDER --kills 50 --seed 0

Every run happens in a forked process: forking after the imports saves most of the time, and nothing has used a thread
before.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import logging

from zoo.base.folders import RESULT_FILE
from zoo.data.tasks import TASKS, Splits
from zoo.training import train
from zoo.training.trainer import ZooTrainer

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "dropout": 0.2}
COMMON: dict[str, Any] = {
    **{"settings": SIZES, "tokenizer": {"kind": "word", "min_frequency": 1}, "per_device_train_batch_size": 8},
    **{"warmup_steps": 1, "logging_steps": 2, "save_strategy": "steps", "save_total_limit": 2, "progress": False},
    **{"use_cpu": True, "full_determinism": True},
}
TEXT = "language-modeling:block_size=8"
PAIRS = {"name": "pre-norm", "task": "translation", "generation": {"num_beams": 1, "max_length": 4}}
SETTINGS: dict[str, dict[str, Any]] = {
    "translation": {**PAIRS, "max_steps": 13, "save_steps": 3},
    "group_by_length": {
        **PAIRS,
        **{"max_steps": 13, "save_steps": 5, "train_sampling_strategy": "group_by_length"},
        "gradient_accumulation_steps": 2,
    },
    "early_stopping": {
        **PAIRS,
        **{"max_steps": 40, "save_steps": 3, "eval_strategy": "steps", "early_stopping_patience": 2},
        "learning_rate": 0.3,
    },
    "masked": {"name": "pre-norm", "task": "masked-language-modeling:block_size=8", "max_steps": 33, "save_steps": 4},
    "causal": {"name": "gpt2-style", "task": TEXT, "max_steps": 17, "save_steps": 3, "optim": "muon"},
}
"""Runs that differ in what has to be remembered: the order of data, masks, what was best, and the optimiser's state."""

INCIDENTAL = re.compile(r".*seconds|.*_second|.*_runtime|peak_memory")  # Time and memory in a report


def data_of(task: str) -> Splits:
    """A few examples that ship with the zoo."""
    pairs = TASKS.get("translation").load().train
    if task == "translation":
        return Splits(pairs.select(range(37)), pairs.select(range(37, 43)))
    text = pairs.select_columns(["en"]).rename_column("en", "text").add_column("document", list(range(len(pairs))))
    return Splits(text.select(range(60)), text.select(range(60, 70)))


def run(folder: Path, setting: str, begin: Callable[[bool], object], **changed: Any) -> None:
    """Train, or go on with it, and tell when the first step begins."""

    def announced(trainer: ZooTrainer, *given: Any, **options: Any) -> Any:
        begin(True)
        return whole_train(trainer, *given, **options)

    whole_train, ZooTrainer.train = ZooTrainer.train, announced  # type: ignore[method-assign]
    arguments = {**COMMON, **SETTINGS[setting], "resume": True, **changed}
    name, task = arguments.pop("name"), arguments.pop("task")
    train(name, task, data=data_of(task.partition(":")[0]), output_dir=folder / "model", **arguments)


def in_child(folder: Path, setting: str, **changed: Any) -> tuple[int, Connection]:
    """Train in a process of its own; returns its number, and what tells when it has begun to train."""
    here, there = Pipe()
    child = os.fork()
    if child == 0:
        try:
            run(folder, setting, there.send, **changed)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    there.close()
    return child, here


def ending(child: int) -> int:
    """Wait for a process; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole(folder: Path, setting: str) -> float:
    """Train without an interruption; returns how many seconds it took from the first step on."""
    child, begun = in_child(folder, setting, resume=False)
    begun.recv()
    began = time.monotonic()
    assert ending(child) == 0, setting
    return time.monotonic() - began


def killed(folder: Path, setting: str, seconds: float) -> bool:
    """Kill a run this many seconds after it has begun to train; returns whether it was still running."""
    child, begun = in_child(folder, setting)
    with suppress(EOFError):
        begun.recv()
        time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return ending(child) == -signal.SIGKILL


def plain(value: Any) -> Any:
    """A report without what differs between two runs that are the same."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if not INCIDENTAL.fullmatch(key)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def found(folder: Path) -> tuple[dict[str, Tensor], Any, list[str]]:
    """The weights, the report, and what lies in the folder."""
    model = folder / "model"
    report = json.loads((model / RESULT_FILE).read_text())["report"]
    return load_file(model / "model.safetensors"), plain(report), sorted(path.name for path in folder.iterdir())


def differences(folder: Path, whole: Path) -> list[str]:
    """In what a run that was killed differs from one that was not."""
    (weights, report, left), (wanted, shown, _) = found(folder), found(whole)
    unequal = [name for name in wanted if not torch.equal(weights[name], wanted[name])]
    fields = [f"{name}: {report[name]} instead of {shown[name]}" for name in shown if report[name] != shown[name]]
    stray = [name for name in left if name not in ("model", "model-checkpoints")]
    return [f"{len(unequal)} weights"] * bool(unequal) + fields + stray


def main() -> None:
    """Kill as often as was asked for, the settings taking turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    moments, number, wrong = random.Random(wanted.seed), 0, 0
    lasting: dict[str, float] = {}
    while number < wanted.kills:
        for setting in SETTINGS:
            if setting not in lasting:
                lasting[setting] = whole(wanted.folder / f"{setting}-whole", setting)
            if number >= wanted.kills:
                break
            folder = wanted.folder / f"{setting}-{number}"
            shown = []
            for _ in range(min(moments.choice((1, 2, 3)), wanted.kills - number)):
                moment = moments.uniform(0, 1) * lasting[setting]
                if not killed(folder, setting, moment):
                    lasting[setting] = moment
                    break
                number += 1
                shown.append(f"{moment:.2f} s")
            else:
                status = ending(in_child(folder, setting)[0])
                assert status == 0, f"{setting}, killed after {', '.join(shown)}: ended with {status}"
            unlike = differences(folder, wanted.folder / f"{setting}-whole")
            wrong += bool(unlike)
            print(
                f"{setting}, killed after {', '.join(shown) or 'its end'}: {'; '.join(unlike) or 'equal'}", flush=True
            )
            if not unlike:
                shutil.rmtree(folder)
    print(f"{number} kills, {wrong} runs that differ from whole ones")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
