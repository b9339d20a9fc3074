"""BabyLM in one command: a corpus in its layout, models at numbers of words, revisions that its evaluation loads."""

import json
from pathlib import Path

import pytest
from preloaded import run_python

from zoo.training.recipe import load_recipe
from zoo.training.saving import read_marks

from .conftest import WRITE, environment
from .loopback import LoopbackHub

SIZES = ["hidden_size=16", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=32"]
SMALL = [*range(1, 10), *range(10, 101, 10)]

LOADS = """
import sys, json
from transformers import AutoModelForCausalLM, AutoProcessor
rows = []
for revision in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained("org/babylm", trust_remote_code=True, revision=revision)
    tokenizer = AutoProcessor.from_pretrained(
        "org/babylm", padding_side="right", trust_remote_code=True, revision=revision
    )
    text = tokenizer("the cat sleeps", return_tensors="pt")
    assert "zoo" not in sys.modules
    rows.append(float(model(**text)["logits"].log_softmax(-1).sum()))
print(json.dumps(rows))
"""


@pytest.mark.parametrize(("track", "marks"), [("strict-small", SMALL), ("strict", [*SMALL, *range(200, 1001, 100)])])
def test_recipes_have_the_words_that_the_rules_ask_for(track, marks):
    recipe = load_recipe(f"babylm-{track}")
    assert list(read_marks(recipe.arguments["checkpoint_at"]).items()) == [(f"{mark}M", mark * 10**6) for mark in marks]
    assert recipe.arguments["checkpoint_in"] == "words" and recipe.arguments["num_train_epochs"] == 10


@pytest.mark.thorough
def test_a_corpus_becomes_revisions_that_the_evaluation_loads(hub: LoopbackHub, tmp_path: Path) -> None:
    for name, times in (("train_10M/childes.train", 80), ("train_10M/wiki.train", 60), ("dev/childes.dev", 20)):
        file = tmp_path / "babylm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"the cat {place} sees the dog {place * 7 % 11} .\n" for place in range(times)))
    words = 8 * (80 + 60)
    command = [
        *("train", "gpt2-style", "--recipe", "babylm-strict-small", "--data", str(tmp_path / "babylm")),
        *("--task", "language-modeling:block_size=16", "--tokenizer", "bpe:vocab_size=300"),
        *(word for size in SIZES for word in ("--set", size)),
        *("--per-device-train-batch-size", "4", "--gradient-accumulation-steps", "1", "--warmup-steps", "2"),
        *("--checkpoint-at", f"0.5K,{10 * words}", "--push", "org/babylm", "--with-code", "--quiet", "--json"),
    ]
    home = tmp_path / "home"
    done = run_python(
        ["-m", "zoo", *command, "-o", str(tmp_path / "model")],
        env=environment(hub, home, HF_TOKEN=WRITE, ZOO_DATA=str(tmp_path / "data")),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["epochs"] == pytest.approx(10, rel=0.02)
    # The last one is reached but for 1.3 %, and is the model at the end.
    branches = ["chck_0.5K", f"chck_{10 * words}"]
    assert hub.storage.repo("org/babylm")["refs"].keys() == {"main", *branches}
    seen = {
        name: json.loads((tmp_path / "model-revisions" / name / "result.json").read_text())["checkpoint"][
            "train_tokens"
        ]
        for name in branches
    }
    per_word = seen[branches[-1]] / (10 * words)
    assert seen["chck_0.5K"] == pytest.approx(500 * per_word, abs=100)
    loaded = run_python(["-c", LOADS, *branches, "main"], env=environment(hub, tmp_path / "other", HF_TOKEN=WRITE))
    assert loaded.returncode == 0, loaded.stderr
    numbers = json.loads(loaded.stdout.splitlines()[-1])
    assert numbers[0] != numbers[1] and numbers[2] == pytest.approx(numbers[1])
