"""Verbs that show and compare."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic_comparison import made_up

from zoo.cli.compare import next_commands, report
from zoo.cli.output import writable
from zoo.comparison.doctor import PAYS, padding, steps
from zoo.comparison.run.record import PHASES
from zoo.fast.switches import fast_paths
from zoo.registry import describe

LISTS = [["settings", "position"], ["settings"], ["tasks"], ["recipes"], ["tokenizers"]]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "words",
    [
        ["show", "vanilla+faithful"],
        ["params", "marian-style"],
        *LISTS,
        pytest.param(["doctor"], marks=pytest.mark.thorough),
    ],
)
def test_what_is_printed_fits_the_terminal(zoo, words, columns):
    run = zoo(*words, columns=columns)
    assert run.exit_code == 0 and max(map(len, run.stdout.splitlines())) <= columns


def test_show_tells_what_a_card_tells(zoo):
    text = zoo("show", "odom-style").stdout
    card = describe("odom-style")
    for reported in (card.summary, card.source, card.paper, f"{card.num_parameters:,}", f"{card.file}:{card.line}"):
        assert reported in text
    for quirk, description in card.quirks.items():
        assert quirk in text and description in text
    assert card.limits[0] in text and "cross-attention" in text


def test_show_draws_the_task_that_is_asked_for(zoo):
    assert "max pooling" in zoo("show", "vanilla", "--task", "sequence-classification").stdout
    assert "max pooling" not in zoo("show", "vanilla").stdout


def test_show_takes_a_folder(zoo, tmp_path):
    zoo("build", "gpt2-style@tiny:vocab_size=500,position=rotary", "-o", f"{tmp_path}/m")
    text = zoo("show", f"{tmp_path}/m").stdout
    assert "vocab_size=500" in text and "rotary positions" in text and "164,608" not in text
    shown = json.loads(zoo("show", f"{tmp_path}/m", "--json").stdout)
    assert shown["settings"]["vocab_size"] == 500 and f"{shown['num_parameters']:,} parameters" in text
    zoo("show", f"{tmp_path}/m", "--svg", f"{tmp_path}/m.svg")
    assert "rotary" in (tmp_path / "m.svg").read_text(encoding="utf-8")
    refused = zoo("show", f"{tmp_path}/m", "--code")
    assert refused.exit_code == 2 and "--code is of variants" in refused.stderr


def test_show_takes_a_variant_before_a_folder_of_its_name(zoo, tmp_path, monkeypatch):
    (tmp_path / "vanilla").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "def forward" in zoo("show", "vanilla", "--code").stdout
    assert zoo("show", "./vanilla").exit_code == 2


def test_show_refuses_a_setting_before_it_prints_a_card(zoo):
    refused = zoo("show", "gpt2-style:hidden_sise=3", "--no-drawing")
    assert refused.exit_code and not refused.stdout and "did you mean 'hidden_size'" in refused.stderr


def test_show_names_presets_of_the_variants_own(zoo):
    text = zoo("show", "attention-is-all-you-need").stdout
    assert "big (hidden_size=1024" in text and "tiny, small" in text


def test_show_as_json(zoo):
    shown = json.loads(zoo("show", "vanilla+cross-attention-reuses-self", "--json").stdout)
    assert shown["name"] == "vanilla"
    assert shown["num_parameters"] == describe("vanilla+cross-attention-reuses-self").num_parameters
    assert [block["name"] for block in shown["drawing"]["blocks"]] == ["encoder", "decoder"]
    cross = shown["drawing"]["blocks"][1]["layers"][0]["items"][1]["branch"][0]
    assert cross["label"] == "cross-attention" and cross["quirks"] == ["cross-attention-reuses-self"]


def test_show_code_prints_the_source_in_reading_order(zoo):
    text = zoo("show", "gpt2-style", "--code", columns=80).stdout
    classes = ("ZooForCausalLM", "Residual(", "EncoderLayer(", "Attention(")
    order = ['decoder(\n    "gpt2-style"', *(f"class {name}" for name in classes)]
    assert [text.index(start) for start in order] == sorted(text.index(start) for start in order)
    assert "        return self.down_proj(self.norm(self.dropout(inner)))" in text.splitlines()
    functions = json.loads(zoo("show", "gpt2-style", "--code", "--json").stdout)["functions"]
    assert functions[0]["file"] == "zoo/models/language_modeling.py"


def test_diff(zoo):
    text = zoo("diff", "pre-norm", "post-norm").stdout
    assert [one.split() for one in text.splitlines() if "norm_placement" in one] == [["norm_placement", "pre", "post"]]
    assert "hidden_act" not in text


def test_diff_with_settings_in_the_names(zoo):
    text = zoo("diff", "vanilla", "vanilla+dropout-on-the-skip", columns=80).stdout
    assert ["dropout-on-the-skip", "off", "on"] in [line.split() for line in text.splitlines()]


def test_diff_as_json(zoo):
    found = json.loads(zoo("diff", "pre-norm", "pre-norm:position=rotary", "--json").stdout)
    assert (found["a"], found["b"]) == ("pre-norm", "pre-norm:position=rotary")
    assert {"axis": "position", "kind": "setting", "a": "learned", "b": "rotary"} in found["differences"]


def test_diff_of_equals(zoo):
    assert zoo("diff", "pre-norm", "pre-norm").stdout == "pre-norm and pre-norm do not differ.\n"
    assert json.loads(zoo("diff", "pre-norm", "pre-norm", "--json").stdout)["differences"] == []


def test_pictures_are_written_to_files(zoo, tmp_path):
    one, two = tmp_path / "new" / "one.svg", tmp_path / "two.svg"
    assert zoo("show", "pre-norm@tiny", "--svg", one).stdout == f"Wrote {one}\n" and "<title" in one.read_text()
    assert zoo("diff", "bert-style@tiny", "marian-style@tiny", "--svg", two, "--json").exit_code == 0
    assert "only marian-style@tiny has cross-attention" in two.read_text()
    assert zoo("show", "pre-norm@tiny", "--svg", tmp_path).exit_code == 2


def test_params(zoo):
    text = zoo("params", "marian-style@tiny").stdout
    assert text.split()[0] == "Module" and f"{describe('marian-style@tiny').num_parameters:,} parameters" in text
    assert "lm_head uses what model.encoder.embed_tokens has." in text
    assert "model.decoder.layers.*.cross_attn.q_proj" in text
    assert "model.decoder.layers.1.cross_attn.q_proj" in zoo("params", "marian-style@tiny", "--every-layer").stdout


def test_params_as_json(zoo):
    counted = json.loads(zoo("params", "pre-norm@tiny", "--task", "masked-lm", "--json").stdout)
    assert counted["task"] == "masked-lm" and counted["total"] == sum(row["count"] for row in counted["rows"])


def test_env(zoo):
    found = json.loads(zoo("env", "--json").stdout)
    assert found["versions"]["transformer-zoo"] and found["versions"]["torch"] and "cpu" in found["devices"]
    text = zoo("env").stdout
    assert all(version in text for version in found["versions"].values() if version)


@pytest.mark.thorough
def test_doctor_advises_what_pays(zoo):
    found = {finding["topic"]: finding for finding in json.loads(zoo("doctor", "--json").stdout)}
    shown = {"Processor", "Threads", "float32 matmul", "bfloat16 matmul", "Dropout"}
    shown |= {"Padding taken out", "Decode steps"}
    assert shown <= found.keys() and "ZOO_UNPADDING" in found["Padding taken out"]["advice"]
    half = found["bfloat16 matmul"]
    faster = float(half["found"].split(", ")[1].split()[0])
    assert ("pays" in half["advice"]) is (faster > PAYS)


@pytest.mark.parametrize(("switch", "found"), [("prepacked_weights", "not prepacked"), ("graph_capture", "captured")])
def test_doctor_names_the_switch_that_is_off_for_decode_steps(switch, found):
    with fast_paths(**{switch: "never"}):
        assert f"ZOO_{switch.upper()}" in steps().found and found in steps().found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts(zoo, shell):
    assert "_ZOO_COMPLETE" in zoo("completion", shell).stdout


def complete(command, *words: str) -> list[str]:
    line = ["zoo", *words]
    run = command(_ZOO_COMPLETE="bash_complete", COMP_WORDS=" ".join(line), COMP_CWORD=str(len(line) - 1))
    assert run.stderr == ""
    return [answer.partition(",")[2] for answer in run.stdout.split()]


def test_verbs_names_and_tasks_are_completed(command):
    assert complete(command, "pa") == ["params"] and complete(command, "show", "van") == ["vanilla"]
    assert complete(command, "diff", "vanilla", "lla") == ["llama-style"]
    assert complete(command, "build", "vanilla", "--task", "seq") == ["sequence-classification", "seq2seq-lm"]


def test_completion_does_not_wait_for_torch(command):
    run = command(_ZOO_COMPLETE="bash_complete", COMP_WORDS="zoo show v", COMP_CWORD="2", PYTHONPROFILEIMPORTTIME="1")
    assert run.stdout == "plain,value-residual\nplain,vanilla\n" and " torch\n" not in run.stderr


def test_drawings_degrade_where_the_encoding_has_no_lines():
    assert writable("│ + ◄──╯ × 2 ü", "utf-8") == "│ + ◄──╯ × 2 ü"
    assert writable("│ + ◄──╯ × 2 ü", "ascii") == "| + <--' x 2 ?"


def test_a_gpu_without_the_kernel_keeps_its_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert f"in half precision: none, as PyTorch {torch.__version__}" in padding().found
    monkeypatch.setattr("zoo.fast.unpadding.has_kernel", lambda device: True)
    assert "in half precision: any" in padding().found


def test_the_next_commands_are_for_the_best_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=1)
    words = ["zoo", "compare", "a", "b", "--seed", "0", "-o", str(tmp_path / "out")]
    one = replace(one, folder=tmp_path / "out", command=words)
    report, model, surer = (line.strip() for line in next_commands(one).splitlines())
    assert report == "open out/report.html in a browser"
    assert model.startswith(f"zoo generate out/{one.runs_of('b')[0].folder}/model ")
    assert min(one.sources, key=len) in model
    assert surer == "zoo compare a b --seeds 3 -o out"
    verbs = {"text-classification": "predict", "masked-language-modeling": "evaluate", "copy": "generate"}
    for task, verb in verbs.items():
        other = replace(one, task=task, recipe={**one.recipe, "task": task})
        assert f"\n  zoo {verb} out/" in next_commands(other)
    three = replace(made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3), folder=Path("/elsewhere"))
    assert len(next_commands(three).splitlines()) == 2 and "/elsewhere/report.html" in next_commands(three)


def test_timings_are_means_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=2)
    assert report(one, timings=True, as_json=False) == 0
    assert "no run of this comparison was timed" in capsys.readouterr().out
    seconds = [dict.fromkeys(PHASES, 1.0) | {"train": train} for train in (3.0, 9.0)]
    timed = [replace(run, timings=seconds[run.seed % 2]) for run in one.runs if run.name == "a"]
    assert report(replace(one, runs=timed), timings=True, as_json=False) == 0
    *_, shown = (line for line in capsys.readouterr().out.splitlines() if line.startswith("a "))
    assert shown.split() == ["a", *("6.00" if phase == "train" else "1.00" for phase in PHASES), "50"]
