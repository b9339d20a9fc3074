"""BLiMP by two harnesses that others wrote, unchanged, and by the zoo: which sentence of every pair is preferred.

    git clone https://github.com/babylm-org/babylm-eval
    pip install lm_eval scipy
    python scripts/upstream/minimal_pairs.py MODEL babylm-eval --data BLIMP --limit 10

MODEL is a folder of a causal language model with its tokenizer. lm_eval's tasks load their data from the Hub, so its
model scores the local pairs in the way of its blimp tasks: a sentence after an empty context. babylm-eval reads what
the tokenizer gives: where that puts nothing in front of a text, the first token has no score.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import zoo  # noqa: F401  (registers the zoo's models)
from zoo.training.generation import load_checkpoint
from zoo.training.suites import SUITES, MinimalPair, evaluate_suite
from zoo.training.suites.suite import suite_folder

RUN = "import runpy, zoo; runpy.run_module('evaluation_pipeline.sentence_zero_shot.run', run_name='__main__')"


def by_babylm(model: Path, harness: Path, pairs: list[MinimalPair]) -> list[bool]:
    """Whether babylm-eval prefers the acceptable sentence of each pair."""
    with tempfile.TemporaryDirectory() as folder:
        data, results = Path(folder) / "blimp", Path(folder) / "results"
        data.mkdir()
        rows = (
            {"sentence_good": pair.good, "sentence_bad": pair.bad, "UID": pair.paradigm}
            | {"field": pair.field, "linguistics_term": pair.phenomenon}
            for pair in pairs
        )
        (data / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
        given = {"data_path": data, "task": "blimp", "model_path_or_name": model, "backend": "causal"}
        words = [word for name, value in {**given, "output_dir": results}.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-c", RUN, *words, "--save_predictions"]
        subprocess.run(command, cwd=harness / "strict", check=True, capture_output=True)
        (file,) = results.rglob("predictions.json")
        found = json.loads(file.read_text())
    places: dict[str, Any] = {name: iter(one["predictions"]) for name, one in found.items()}
    return [next(places[pair.paradigm])["pred"] == pair.good for pair in pairs]


def by_lm_eval(model: Path, pairs: list[MinimalPair]) -> list[tuple[float, float]]:
    """lm_eval's log-likelihoods of both sentences."""
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=16)
    requests = [SimpleNamespace(args=("", text)) for pair in pairs for text in (pair.good, pair.bad)]
    scores = [score for score, _ in harness.loglikelihood(requests, disable_tqdm=True)]
    return list(zip(scores[::2], scores[1::2], strict=True))


@torch.inference_mode()
def without_beginning(model: Path, pairs: list[MinimalPair]) -> list[bool]:
    """Whether the acceptable sentence has the higher score where neither follows anything: its first token has none."""
    loaded, tokenizers = load_checkpoint(model)

    def score(text: str) -> float:
        ids = torch.tensor([tokenizers.target(text, add_special_tokens=False)["input_ids"]])
        log_probabilities = loaded(ids[:, :-1]).logits.log_softmax(dim=-1)
        return float(log_probabilities.gather(2, ids[:, 1:, None]).sum())

    return [score(pair.good) > score(pair.bad) for pair in pairs]


def main() -> None:
    """Print how many pairs the three decide alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("babylm_eval", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--limit", type=int, default=10)
    given = parser.parse_args()
    model = given.model.resolve()
    pairs = list(SUITES.get("blimp").pairs(suite_folder("blimp", given.data), given.limit))
    ours = evaluate_suite(model, "blimp", data=given.data, limit=given.limit).scores
    theirs = by_lm_eval(model, pairs)
    apart = max(
        abs(mine - other)
        for score, both in zip(ours, theirs, strict=True)
        for mine, other in zip((score.good, score.bad), both, strict=True)
    )
    alike = sum(score.is_right == (good > bad) for score, (good, bad) in zip(ours, theirs, strict=True))
    print(f"lm_eval: {alike:,} of {len(pairs):,} pairs alike, scores differ by up to {apart:.1e} nats")
    found = by_babylm(model, given.babylm_eval, pairs)
    own = [score.is_right for score in ours]
    for how, right in (("", own), (" without a token that begins a text", without_beginning(model, pairs))):
        same = sum(one == other for one, other in zip(right, found, strict=True))
        print(f"babylm-eval: {same:,} of {len(pairs):,} pairs alike{how}")


if __name__ == "__main__":
    main()
