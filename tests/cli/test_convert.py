"""`zoo convert` and `zoo export`: thin over the functions, and nothing half-written."""

import json
from pathlib import Path

import pytest
import torch
from command_line import run
from native_models import GPT2, native_model, outputs, zoo_model
from oracles import vanilla

import zoo
from zoo import load

HINTS = ("--set", "num_attention_heads=3", "--set", "pad_token_id=1", "--set", "decoder_pad_token_id=2")


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(vanilla.random_state_dict(dtype=torch.float32), path)
    return path


def test_a_checkpoint_becomes_a_folder(zoo, checkpoint, tmp_path):
    out = tmp_path / "out"
    result = zoo("convert", checkpoint, "--from", "vanilla", "-o", out, "--keep-dead", "--json", *HINTS)
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout[result.stdout.index("{") :])
    assert made["variant"] == "vanilla" and "cross-attention-reuses-self" in made["quirks"]
    weights, src, trg = torch.load(checkpoint), *vanilla.random_inputs()
    expected = vanilla.transformer(weights, src, trg, n_heads=3, src_pad_idx=1, trg_pad_idx=2)
    assert torch.allclose(load(out)(input_ids=src, decoder_input_ids=trg).logits, expected, atol=1e-5)


def test_quirks_can_be_left_out(zoo, checkpoint, tmp_path):
    both = ["dropout-on-the-skip", "max-pools-padding"]
    for text, quirks in (("", []), ("max-pools-padding, dropout_on_the_skip", both)):
        out = tmp_path / f"out{len(quirks)}"
        assert zoo("convert", checkpoint, "-o", out, "--quirks", text, *HINTS).exit_code == 0
        assert load(out).config.quirks == quirks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "num_attention_heads"),
        (("--from", "vanila", *HINTS), "did you mean 'vanilla'"),
        (("--quirks", "nope", *HINTS), "unknown quirk"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(zoo, checkpoint, tmp_path, arguments, message):
    result = zoo("convert", checkpoint, "-o", tmp_path / "out", *arguments)
    assert result.exit_code == 2 and message in result.output and "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_keys_below_a_prefix_are_converted(zoo, tmp_path):
    body = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    weights = {f"transformer.{key}": value for key, value in body.state_dict().items()}
    torch.save({**weights, "generator.weight": torch.zeros(5, 16)}, tmp_path / "model.pt")
    given = ("--set", "num_attention_heads=2", "--set", "norm_placement=post", "--set", "hidden_act=relu")
    command = ("convert", str(tmp_path / "model.pt"), "-o", str(tmp_path / "out"), *given)
    refused = zoo(*command)
    assert refused.exit_code == 2 and "--from torch-nn --prefix transformer." in refused.stderr
    assert zoo(*command, "--from", "torch-nn", "--prefix", "transformer.").exit_code == 0
    assert load(tmp_path / "out").config.hidden_size == 16


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
    assert [plan["target"] for plan in plans[:6]] == exact, "what works comes first"
    assert all(plan["obstacles"] for plan in plans[6:])


def test_a_head_size_that_vllm_lacks_on_cpus_is_named_before_loading(tmp_path):
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "vocab_size": 40}
    for name, size, wording in (("llama-style", 24, "head_dim=24"), ("llama-style", 32, ""), ("alibi-decoder", 24, "")):
        model = zoo.build(f"{name}@tiny", "causal-lm", head_dim=size, **sizes)
        model.save_pretrained(folder := tmp_path / f"{name}-{size}")
        plan = run("export", folder, "--plan").stdout
        (line,) = (line for line in plan.splitlines() if line.startswith("bundle"))
        assert ("vLLM" in line) == (size == 24) and wording in line
        assert ("positions 'alibi'" in line) == (name == "alibi-decoder")
        for target in ("bundle", "llama") if name == "llama-style" else ("bundle",):
            report = zoo.export(folder, tmp_path / f"{folder.name}-{target}", target, fresh_process=False)
            notes = [note for note in report.notes if "vLLM" in note]
            assert len(notes) == (size == 24) and wording in "".join(notes)
            assert all(note in (report.folder / "README.md").read_text() for note in notes)


def test_the_matrix_is_of_the_variants_that_are_named():
    rows = json.loads(run("export", "--matrix", "d2l-style", "--json").stdout)
    assert [(row["variant"], row["target"]) for row in rows] == [("d2l-style", "marian")] * len(rows) and rows
    assert "did you mean 'd2l-style'" in run("export", "--matrix", "d2l-stile").stderr
    assert "--matrix takes no -o" in run("export", "d2l-style", "--matrix", "-o", "somewhere").stderr


@pytest.mark.parametrize(("arguments", "words"), [((), "DIR"), (("somewhere",), "-o")])
def test_missing_arguments_are_named(arguments, words):
    result = run("export", *arguments)
    assert result.exit_code == 2 and words in result.output


def test_inexact_targets_are_refused_in_one_line(saved, tmp_path):
    result = run("export", saved, "-o", tmp_path / "out", "--as", "bert")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("zoo: error: bert cannot express this model")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("in_forks")
def test_export_reports_class_and_difference(saved, tmp_path):
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
