"""What is recorded of a run is what ran, wherever it is written."""

import json
from pathlib import Path

import pytest
from command_line import run as command
from comparison.in_process import run_here

import zoo
from zoo.analysis.measuring import FlopsPerToken
from zoo.comparison import compare
from zoo.comparison.files import CHECKPOINT
from zoo.comparison.setup import shared_inputs
from zoo.data.tasks import TASKS
from zoo.hub.addresses import parse_address
from zoo.hub.cards import CardFacts, write_card
from zoo.hub.records import find_result, recipe_of, without_places

pytestmark = pytest.mark.xdist_group("comparison")

MODEL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
ARGUMENTS = {
    **dict(max_steps=2, learning_rate=0.002, per_device_train_batch_size=4, per_device_eval_batch_size=3),
    **dict(warmup_steps=1, weight_decay=0.5, optim="adafactor", lr_scheduler_type="constant_with_warmup"),
    **dict(label_smoothing_factor=0.25, use_cpu=True),
}
GENERATION = {"num_beams": 3, "max_length": 5}
TOKENIZER = {"kind": "character", "joint": True}
NAME = "pre-norm@tiny:num_hidden_layers=2"
RAN = {
    "task": "translation",
    "task_options": {"max_length": 40},
    "tokenizer": TOKENIZER,
    "model": {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32},
    "generation": GENERATION,
}
"""Another value than the recipe's for every option, and a name with a preset that gives others still."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    examples = TASKS.get("translation").load().train.select(range(24))
    folder = tmp_path_factory.mktemp("pairs")
    rows = [f"{number}\t{en}\t{pt}" for number, (en, pt) in enumerate(zip(examples["en"], examples["pt"], strict=True))]
    (folder / "some.tsv").write_text("\n".join(["id\ten\tpt", *rows[:18]]))
    (folder / "others.tsv").write_text("\n".join(["id\ten\tpt", *rows[18:]]))
    return folder


@pytest.fixture(scope="module")
def made(pairs, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        patch.setattr(shared_inputs, "flops_per_token", lambda model, *lengths: FlopsPerToken(2.0, 6.0))
        data = {"data": pairs / "some.tsv", "heldout": pairs / "others.tsv", "columns": ["en", "pt"], "seed": 3}
        model = {"tokenizer": "character", "settings": MODEL, "generation": GENERATION, "progress": False}
        out = tmp_path_factory.mktemp("made")
        return compare([NAME], "translation:max_length=40", output_dir=out, **data, **model, **ARGUMENTS)


def check_recipe(recipe, model):
    assert {name: recipe[name] for name in RAN if name != "model"} == {n: v for n, v in RAN.items() if n != "model"}
    assert {name: recipe["arguments"][name] for name in ARGUMENTS} == ARGUMENTS
    assert {name: recipe["model"].get(name) for name in model} == model


def check_built(folder):
    built = zoo.load(folder).config
    assert (built.hidden_size, built.num_attention_heads, built.intermediate_size) == (16, 2, 32)
    assert built.num_hidden_layers == 2 and built.vocab_size < 120


def check_card(folder):
    text = write_card(folder, parse_address("org/model"), CardFacts(recipe=recipe_of(find_result(folder))))
    for part in (
        *("| Tokenizer | kind=character, joint=True |", "hidden_size=16", "optim=adafactor", "learning_rate=0.002"),
        *("num_beams=3", "| Seed | 3 |", "| Data | some.tsv |", "| Held-out data | others.tsv |"),
        "| Columns | en, pt |",
    ):
        assert part in text, part
    assert str(folder) not in text


def test_a_comparison_records_what_ran(made, pairs):
    (run,) = made.runs
    assert run.error is None, run.error
    folder = Path(run.folder)
    check_built(folder / CHECKPOINT)
    check_recipe(json.loads((made.folder / "results.json").read_text())["recipe"], MODEL)
    job = json.loads((folder / "job.json").read_text())
    check_recipe(job["recipe"], RAN["model"])
    result = json.loads((folder / CHECKPOINT / "result.json").read_text())
    check_recipe(result["recipe"], RAN["model"])
    assert result["recipe"]["tokenizer"] == job["recipe"]["tokenizer"] == made.recipe["tokenizer"]
    assert (result["variant"], result["seed"], result["report"]["seed"]) == (NAME, 3, 3)
    source = {"data": str(pairs / "some.tsv"), "heldout": str(pairs / "others.tsv"), "columns": ["en", "pt"], "seed": 0}
    assert result["data"]["source"] == source
    assert (result["data"]["train"]["examples"], result["data"]["heldout"]["examples"]) == (18, 6)
    report = (made.folder / "report.html").read_text()
    assert "character" in report and "&#34;bpe&#34;" not in report and '"bpe"' not in report
    check_card(folder / CHECKPOINT)
    assert zoo.evaluate(folder / CHECKPOINT).loss == run.report["heldout_loss"]
    shown = without_places(result)
    assert shown["data"]["source"]["data"] == "some.tsv" and str(pairs) not in json.dumps(shown)


def test_a_training_records_what_ran(pairs, tmp_path):
    folder = tmp_path / "model"
    files = {"--data": pairs / "some.tsv", "--heldout": pairs / "others.tsv", "-o": folder}
    options = ["--task", "translation:max_length=40", "--tokenizer", "character", "--columns", "en,pt"]
    options += ["--seed", "3", "--quiet"]
    options += [str(part) for option in files.items() for part in option]
    options += [part for name, value in MODEL.items() for part in ("--set", f"{name}={value}")]
    options += [part for name, value in ARGUMENTS.items() for part in ("--training", f"{name}={value}")]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("task: translation\ngeneration: {num_beams: 3, max_length: 5}\ntokenizer: {kind: bpe}\n")
    run = command("train", NAME, *options, "--recipe", recipe)
    assert run.exit_code == 0, run.stderr
    check_built(folder)
    result = json.loads((folder / "result.json").read_text())
    check_recipe(result["recipe"], RAN["model"])
    assert (result["variant"], result["seed"]) == (NAME, 3)
    check_card(folder)
    assert f"zoo evaluate {folder}\n" in run.stdout and "12 examples, 6 held out; columns: en, pt" in run.stdout
    evaluated = command("evaluate", folder, "--quiet", "--json", "--n-bootstrap", "1")
    found = json.loads(evaluated.stdout)
    assert (found["loss"], found["examples"], found["data"]) == (result["report"]["heldout_loss"], 6, "others.tsv")
    assert found["scores"] == result["report"]["scores"]
