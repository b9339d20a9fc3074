"""Suites by harnesses that others wrote, unchanged, and by the zoo: what is preferred in every item.

    git clone https://github.com/babylm-org/babylm-eval
    pip install lm_eval scipy aiohttp
    python scripts/upstream/suites.py llama-style.books babylm-eval --limit 10

BLiMP is the corpus of that name (`zoo data get blimp`); the other suites' items are made up here, in the layout of
babylm-eval's evaluation_data, or those of `--data`. The causal model is the given one, with a tokenizer that puts
bos_token in front of every text; the others have its vocabulary and random weights. lm_eval's tasks load their data
from the Hub, so its model scores the local pairs of BLiMP in the way of its tasks: a sentence after an empty context.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers.utils import logging

import zoo
from zoo.data.tokenizers import open_texts
from zoo.training.generation import load_checkpoint
from zoo.training.suites import SUITES, SuiteResult, evaluate_suite
from zoo.training.suites.suite import suite_folder

TASKS = {
    "blimp": "blimp",
    "blimp-supplement": "blimp",
    "ewok": "ewok",
    "comps": "comps",
    "entity-tracking": "entity_tracking",
    "wug-adjective": "wug_adj",
    "wug-past": "wug_past",
}
"""babylm-eval's names of tasks."""

BACKENDS = {
    "causal": ("causal-lm", "", "log-probability"),
    "mlm": ("masked-lm", "bert-style", "pseudo-log-likelihood"),
    "mntp": ("masked-lm", "gpt-bert-style", "pseudo-log-likelihood"),
    "enc_dec_prefix": ("seq2seq-lm", "pre-norm", "log-probability-after-mask"),
    "enc_dec_mask": ("seq2seq-lm", "pre-norm", "pseudo-log-likelihood"),
}
"""babylm-eval's backends: the task of a model, the variant, and the zoo's name of the method."""

RUN = """
import json, runpy, sys, traceback, zoo
from evaluation_pipeline.sentence_zero_shot import dataset
made = dataset.CompletionRankingDataset.__getitem__
def with_images(self, index):
    item = made(self, index)
    for number in range(len(item[0]["sentences"])):
        item[1].setdefault(f"sentence_{number}_image", None)
    return item
dataset.CompletionRankingDataset.__getitem__ = with_images
for words in json.loads(sys.stdin.read()):
    sys.argv[1:] = words
    try:
        runpy.run_module("evaluation_pipeline.sentence_zero_shot.run", run_name="__main__")
    except Exception:
        traceback.print_exc()
"""
"""Runs babylm-eval on several suites. Its batches of encoder-decoders want images, which their items lack. Any error of
a suite is printed, and that suite counts as failed there; the others go on."""

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
PEOPLE, PLACES, THINGS = ("Anna", "The old man", "My friend"), ("the garden", "the house"), ("a cat", "a book", "a hat")


def made_up(seed: int) -> dict[str, list[dict[str, Any]]]:
    """Items of all suites but BLiMP: {file: rows}."""
    draw = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {}
    pairs = list(itertools.product(PEOPLE, PLACES, THINGS))
    rows["supplement_filtered/turn_taking"] = [
        {"sentence_good": f"A: Is {thing} in {place}? B: It is.", "sentence_bad": f"A: Is {thing} in {place}? B: I am."}
        for _, place, thing in pairs
    ]
    for domain in ("material-dynamics", "spatial-relations"):
        rows[f"ewok_filtered/{domain}"] = [
            {"Context1": f"{who} is in {place}.", "Context2": f"{who} is far from {place}.", "Domain": domain}
            | {"Target1": f"{who} sees {thing} there.", "Target2": f"{who} cannot be seen.", "ContextType": "direct"}
            | {"ContextDiff": "antonym", "TargetDiff": "concept swap"}
            for who, place, thing in pairs
        ]
    for subset in ("base", "wugs", "wugs_dist-before", "wugs_dist-in-between"):
        rows[f"comps/comps_{subset}"] = [
            {"prefix_acceptable": f"{who} in {place}", "prefix_unacceptable": f"{thing} in {place}".capitalize()}
            | {"property_phrase": f"can talk about {thing}."}
            for who, place, thing in pairs
        ]
    for split in ("regular", "ambiref", "move_contents"):
        rows[f"entity_tracking/{split}"] = [
            {"input_prefix": f"Box {box} contains {thing}. {who} moves it {moves} times. Box {box} contains"}
            | {"options": [f" {one}" for one in draw.sample((*THINGS, "nothing", "a cup"), 5)], "numops": moves}
            for (who, _, thing), moves, box in zip(pairs, itertools.cycle(range(3)), itertools.cycle(range(6)))
        ]
    for name, ends in (("wug_past_tense/wug_past", ("ed", "t")), ("wug_adj_nominalization/wug_adj", ("ity", "ness"))):
        rows[name] = [
            {"sentences": "\t".join(f"{who} saw the {stem}{end} of {thing}." for end in ends), "ratio": draw.random()}
            for who, stem, thing in itertools.product(PEOPLE, ("spim", "blick", "fep"), THINGS)
        ]
    return rows


def lay_out(folder: Path, data: Path | None, limit: int) -> dict[str, Path]:
    """Write the first items of every file: {suite: folder}."""
    if made := data is None:
        data = folder / "made-up"
        for name, rows in made_up(0).items():
            file = data / f"{name}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    places = {}
    for name in TASKS:
        source = suite_folder(name, None) if name == "blimp" else data
        places[name] = folder / name
        places[name].mkdir()
        for file in SUITES.get(name).find(source):
            lines = file.read_text(encoding="utf-8").splitlines()[: None if made and name != "blimp" else limit]
            (places[name] / file.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return places


def make_model(backend: str, model: str, folder: Path) -> None:
    task, variant, _ = BACKENDS[backend]
    loaded, tokenizers = load_checkpoint(model)
    tokenizer = tokenizers.target
    if variant:
        tokenizer.add_special_tokens({"mask_token": "<mask>"})
        sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "initializer_range": 0.2, **SIZES}
        loaded = zoo.build(variant, task, seed=0, **sizes)
    open_texts(tokenizer)
    loaded.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def by_babylm(backend: str, model: Path, harness: Path, places: dict[str, Path]) -> dict[str, tuple[float, Any]]:
    """babylm-eval's average and predictions of every suite."""
    results = model.parent / f"results-{backend}"
    calls = []
    for name, place in places.items():
        given = {"data_path": place, "task": TASKS[name], "model_path_or_name": model, "backend": backend}
        words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        calls.append([*words, "--output_dir", str(results / name), "--save_predictions"])
    command = [sys.executable, "-c", RUN]
    kept: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    ran = subprocess.run(command, input=json.dumps(calls), cwd=harness / "strict", check=True, **kept)
    found = {}
    for name in places:
        files = [next((results / name).rglob(kind), None) for kind in ("*report.txt", "predictions.json")]
        if None in files:
            print(f"babylm-eval fails on {name} with {backend}: {ran.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        report, predictions = (file.read_text() for file in files if file is not None)
        average = re.search(r"### AVERAGE .*\n(\S+)", report)
        found[name] = float(average[1] if average else "nan"), json.loads(predictions)
    return found


def alike(name: str, ours: SuiteResult, theirs: dict[str, Any]) -> int:
    """Number of items in which both prefer the same option."""
    places = {paradigm: iter(found["predictions"]) for paradigm, found in theirs.items()}
    same = 0
    for score in ours.scores:
        paradigm = TASKS[name] if ours.measure == "correlation" else score.item.paradigm
        option = score.item.options[score.values.index(max(score.values))]
        same += next(places[paradigm])["pred"] == (option.text if name == "comps" else option.completion)
    return same


def by_lm_eval(model: Path, blimp: Path) -> str:
    """How far lm_eval's log-likelihoods of BLiMP's sentences are from the zoo's."""
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=16, add_bos_token=False)
    ours = evaluate_suite(model, "blimp", data=blimp)
    requests = [SimpleNamespace(args=("", one.text)) for score in ours.scores for one in score.item.options]
    theirs = [score for score, _ in harness.loglikelihood(requests, disable_tqdm=True)]
    mine = [value for score in ours.scores for value in score.values]
    apart = max(abs(one - other) for one, other in zip(mine, theirs, strict=True))
    same = sum(
        score.is_right == (good > bad) for score, good, bad in zip(ours.scores, theirs[::2], theirs[1::2], strict=True)
    )
    return f"lm_eval: {same:,} of {len(ours.scores):,} pairs of BLiMP alike, scores differ by up to {apart:.1e} nats"


def main() -> None:
    """Print a table: how many items are decided alike, and both averages where those differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder of a causal language model, or the name of weights")
    parser.add_argument("babylm_eval", type=Path)
    parser.add_argument("--data", type=Path, help="babylm-eval's evaluation_data; by default items that are made up")
    parser.add_argument("--limit", type=int, default=10, help="items per file, but for those made up")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = lay_out(folder, given.data, given.limit)
        rows: dict[str, list[str]] = {name: [] for name in TASKS}
        for backend in given.backends:
            model = folder / backend
            make_model(backend, given.model, model)
            theirs = by_babylm(backend, model, given.babylm_eval.resolve(), places)
            for name in TASKS:
                if name not in theirs:
                    rows[name].append("fails there")
                    continue
                average, predictions = theirs[name]
                ours = evaluate_suite(model, name, data=places[name], method=BACKENDS[backend][2])
                ties = sum(score.is_tied for score in ours.scores)
                same = f"{alike(name, ours, predictions):,} of {len(ours.scores):,}"
                numbers = "" if f"{ours.overall:.2f}" == f"{average:.2f}" else f"; {ours.overall:.2f}, {average:.2f}"
                rows[name].append(f"{same}{numbers}{f', {ties} ties' if ties else ''}")
        print(f"| suite | {' | '.join(given.backends)} |\n|{' --- |' * (len(given.backends) + 1)}")
        for name, cells in rows.items():
            print(f"| `{name}` | {' | '.join(cells)} |")
        if "causal" in given.backends:
            print(by_lm_eval(folder / "causal", places["blimp"]))


if __name__ == "__main__":
    main()
