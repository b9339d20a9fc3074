"""`zoo export`, and `zoo convert` of transformers' own checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from command_line import run
from native_models import GPT2, native_model, outputs, zoo_model

import zoo


@pytest.fixture
def saved(tmp_path):
    zoo_model("vanilla", dtype=torch.float32).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_plan_lists_every_target(saved):
    result = run("export", saved, "--plan")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "exact" in lines["marian"] and "take away their mean" in lines["bart"]
    assert "it is an encoder-decoder" in lines["bert"] and "brings its own code" in lines["bundle"]
    assert "by trial" in lines["onnx"]


def test_plan_as_json(saved):
    plans = json.loads(run("export", saved, "--plan", "--json").stdout)
    assert plans[0]["target"] == "marian"
    exact = [plan["target"] for plan in plans if plan["exact"]]
    assert exact == ["marian", "bundle", "ctranslate2", "onnx", "openvino", "transformers.js"]
    assert [plan["target"] for plan in plans[:6]] == exact, "what works stands first"
    assert all(plan["obstacles"] for plan in plans[6:])


def test_a_head_size_that_vllm_lacks_on_cpus_is_named_before_loading(tmp_path):
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "vocab_size": 40}
    for name, size, said in (("llama-style", 24, "head_dim=24"), ("llama-style", 32, ""), ("alibi-decoder", 24, "")):
        model = zoo.build(f"{name}@tiny", "causal-lm", head_dim=size, **sizes)
        model.save_pretrained(folder := tmp_path / f"{name}-{size}")
        plan = run("export", folder, "--plan").stdout
        (line,) = (line for line in plan.splitlines() if line.startswith("bundle"))
        assert ("vLLM" in line) == (size == 24) and said in line
        assert ("positions 'alibi'" in line) == (name == "alibi-decoder")
        for target in ("bundle", "llama") if name == "llama-style" else ("bundle",):
            report = zoo.export(folder, tmp_path / f"{folder.name}-{target}", target, fresh_process=False)
            notes = [note for note in report.notes if "vLLM" in note]
            assert len(notes) == (size == 24) and said in "".join(notes)
            assert all(note in (report.folder / "README.md").read_text() for note in notes)


def test_the_matrix_is_of_the_variants_that_are_named():
    rows = json.loads(run("export", "--matrix", "d2l-style", "--json").stdout)
    assert [(row["variant"], row["target"]) for row in rows] == [("d2l-style", "marian")] * len(rows) and rows
    assert "did you mean 'd2l-style'" in run("export", "--matrix", "d2l-stile").stderr
    assert "--matrix takes no -o" in run("export", "d2l-style", "--matrix", "-o", "somewhere").stderr


@pytest.mark.parametrize(("arguments", "says"), [((), "DIR"), (("somewhere",), "-o")])
def test_missing_arguments_are_named(arguments, says):
    result = run("export", *arguments)
    assert result.exit_code == 2 and says in result.output


def test_inexact_targets_are_refused_in_one_line(saved, tmp_path):
    result = run("export", saved, "-o", tmp_path / "out", "--as", "bert")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("zoo: error: bert cannot express this model")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.slow
def test_export_says_what_it_did(saved, tmp_path):
    result = run("export", saved, "-o", tmp_path / "out", "--as", "marian")
    assert result.exit_code == 0 and "MarianMTModel" in result.output
    assert "loaded without the zoo; differs by at most" in result.output


def test_convert_takes_a_native_folder(tmp_path):
    native = native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32)
    native.save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "vocab.json").write_text("{}")
    result = run("convert", tmp_path / "gpt2", "-o", tmp_path / "zoo")
    assert result.exit_code == 0, result.output
    assert torch.allclose(outputs(zoo.load(tmp_path / "zoo")), outputs(native), atol=1e-5)
    assert (tmp_path / "zoo" / "vocab.json").is_file()
