"""Models that were saved while a model was trained go to branches, those of BabyLM at numbers of words."""

import json
import shutil
from pathlib import Path

import pytest
from preloaded import run_python
from safetensors.torch import load

import zoo
from zoo.base.errors import CheckpointError
from zoo.hub.errors import RepoIdError
from zoo.training.recipe import load_recipe
from zoo.training.saving import read_marks

from .conftest import WRITE, Start, environment
from .loopback import LoopbackHub

SETTINGS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
MARKS = ("1K", "0.4K")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "a.txt").write_text("The cat sees the dog. " * 200)
    zoo.train(
        "gpt2-style",
        "language-modeling:block_size=16",
        data=folder / "a.txt",
        tokenizer="character",
        settings=SETTINGS,
        output_dir=folder / "model",
        max_steps=20,
        per_device_train_batch_size=4,
        checkpoint_at=",".join(MARKS),
        scored=False,
        progress=False,
    )
    return folder / "model"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".safetensors")}


def test_each_model_of_a_run_is_a_branch(hub: LoopbackHub, worker: Start, model: Path) -> None:
    process = worker()
    answer = process.ok("push", model, "org/model", revisions=True)
    repo = hub.storage.repo("org/model")
    branches = {f"chck_{mark}": model.parent / "model-revisions" / f"chck_{mark}" for mark in MARKS}
    assert repo["refs"].keys() == {"main", *branches}
    assert answer["revisions"] == {branch: repo["refs"][branch] for branch in sorted(branches)}
    weights = {hub.storage.contents("org/model", "main")["model.safetensors"]}
    for branch, folder in branches.items():
        there, here = hub.storage.contents("org/model", branch), files(folder)
        record = json.loads(there.pop("result.json"))
        assert record["checkpoint"] == json.loads(here.pop("result.json"))["checkpoint"]
        assert record["checkpoint"]["train_tokens"] > 0
        assert f'revision="{branch}"' in there["README.md"].decode(), "the card of the main branch"
        assert {
            name: there[name] for name in ("config.json", "tokenizer.json", "model.safetensors")
        }.items() <= here.items()
        weights.add(there["model.safetensors"])
    assert len(weights) == 3
    again = process("push", model, "org/model", revisions=True)
    assert again["ok"]["revisions"] == answer["revisions"]


def test_models_of_another_run_and_runs_without_models_are_refused(model: Path, tmp_path: Path) -> None:
    for place in ("model", "model-revisions"):
        shutil.copytree(model.parent / place, tmp_path / place)
    assert zoo.push(tmp_path / "model", "org/model", revisions=True, dry_run=True).revisions.keys() == {
        "chck_0.4K",
        "chck_1K",
    }
    for option in ("revisions", "space"):
        with pytest.raises(RepoIdError, match=f"(?i)a pull request cannot hold (a )?{option}"):
            zoo.push(tmp_path / "model", "org/model", create_pr=True, **{option: True})
    with pytest.raises(RepoIdError, match="replaces all files of the branch 'native'"):
        zoo.push(tmp_path / "model", "org/model@native", native=True)
    file = tmp_path / "model-revisions/chck_1K/result.json"
    file.write_text(file.read_text().replace('"learning_rate"', '"another_rate"'))
    with pytest.raises(CheckpointError, match="chck_1K was saved in another run"):
        zoo.push(tmp_path / "model", "org/model", revisions=True)
    shutil.rmtree(tmp_path / "model-revisions")
    with pytest.raises(CheckpointError, match="model-revisions holds no models to push as revisions"):
        zoo.push(tmp_path / "model", "org/model", revisions=True)


COMMAND = (
    "train pre-norm@tiny --task copy:train_examples=64,heldout_examples=16 --max_steps 2 --quiet "
    "--training logging_steps=1 --report_to tensorboard --checkpoint-at 50 --push org/copies"
)


@pytest.mark.thorough
def test_a_run_ends_on_the_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    done = run_python(
        ["-m", "zoo", *COMMAND.split(), "-o", str(tmp_path / "model")],
        env=environment(hub, tmp_path / "home", HF_TOKEN=WRITE),
    )
    assert done.returncode == 0, done.stderr
    pushed = hub.storage.contents("org/copies")
    assert {"config.json", "tokenizer.json", "README.md"} <= set(pushed)
    assert load(pushed["model.safetensors"]).keys() == load((tmp_path / "model/model.safetensors").read_bytes()).keys()
    card = pushed["README.md"].decode()
    assert "model-index" in card and "Exact match" in card
    assert hub.storage.repo("org/copies")["refs"].keys() == {"main", "chck_50"}
    assert "org/copies" in done.stdout + done.stderr
    assert list((tmp_path / "model-logs").glob("events.out.tfevents.*"))


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
