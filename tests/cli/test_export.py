"""`zoo export`, and `zoo convert` of transformers' own checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from native_models import GPT2, native_model, outputs, zoo_model

import zoo
from zoo.cli.main import cli


def run(*arguments):
    return CliRunner(env={"COLUMNS": None}).invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def saved(tmp_path):
    zoo_model("vanilla", dtype=torch.float32).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_plan_lists_every_target(saved):
    result = run("export", saved, "--plan")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "exact" in lines["marian"]
    assert "take away their mean" in lines["bart"]
    assert "it is an encoder-decoder" in lines["bert"]
    assert "brings its own code" in lines["bundle"]
    assert "by trial" in lines["onnx"]


def test_plan_as_json(saved):
    plans = json.loads(run("export", saved, "--plan", "--json").stdout)
    assert plans[0]["target"] == "marian"
    exact = [plan["target"] for plan in plans if plan["exact"]]
    assert exact == ["marian", "bundle", "ctranslate2", "onnx", "openvino", "transformers.js"]
    assert [plan["target"] for plan in plans[:6]] == exact, "what works stands first"
    assert all(plan["obstacles"] for plan in plans[6:])


def test_the_matrix_is_of_the_variants_that_are_named():
    rows = json.loads(run("export", "--matrix", "d2l-style", "--json").stdout)
    assert [(row["variant"], row["target"]) for row in rows] == [("d2l-style", "marian")] * len(rows) and rows
    assert "did you mean 'd2l-style'" in run("export", "--matrix", "d2l-stile").stderr
    assert "only list; leave out -o" in run("export", "d2l-style", "--matrix", "-o", "somewhere").stderr


@pytest.mark.parametrize(("arguments", "says"), [((), "DIR"), (("somewhere",), "-o")])
def test_missing_arguments_are_named(arguments, says):
    result = run("export", *arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_inexact_targets_are_refused_in_one_line(saved, tmp_path):
    result = run("export", saved, "-o", tmp_path / "out", "--as", "bert")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("zoo: error: bert cannot express this model")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.slow
def test_export_says_what_it_did(saved, tmp_path):
    result = run("export", saved, "-o", tmp_path / "out", "--as", "marian")
    assert result.exit_code == 0
    assert "MarianMTModel" in result.output
    assert "loaded without the zoo; differs by at most" in result.output


def test_convert_takes_a_native_folder(tmp_path):
    native = native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32)
    native.save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "vocab.json").write_text("{}")
    result = run("convert", tmp_path / "gpt2", "-o", tmp_path / "zoo")
    assert result.exit_code == 0, result.output
    assert torch.allclose(outputs(zoo.load(tmp_path / "zoo")), outputs(native), atol=1e-5)
    assert (tmp_path / "zoo" / "vocab.json").is_file()
