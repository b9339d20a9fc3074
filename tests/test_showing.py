"""Summaries of models, and tables of their parameters."""

import dataclasses
import json
import runpy
from pathlib import Path

import pytest
import torch
from every_variant import EACH
from synthetic_comparison import made_up

import zoo
from zoo.analysis.drawing import draw
from zoo.analysis.parameters import by_module, count_by_parameter
from zoo.base.errors import InputError, UnknownOverrideError, UnknownVariantError
from zoo.hub.cards import facts_of_model
from zoo.inside import attention, logit_lens, summary

ROOT = Path(__file__).parents[1]


def test_a_model_is_shown_with_its_own_settings() -> None:
    model = zoo.build("gpt2-style@tiny", vocab_size=97, position="rotary")
    portrait = zoo.show(model)
    assert portrait.card.num_parameters == model.num_parameters() and portrait.card.settings["vocab_size"] == 97
    assert any(step.label == "rotary positions" for step in portrait.drawing.steps())
    page = portrait._repr_html_()
    assert "<svg" in page and "hidden_size=64" in page
    assert "rotary positions" in str(portrait) and "<svg" not in str(portrait)


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_a_classifier_has_its_own_number_of_labels(task: str, tmp_path: Path) -> None:
    model = zoo.build("bert-style@tiny", task, vocab_size=32, num_labels=7, problem_type="regression")
    model.save_pretrained(folder := str(tmp_path))
    counts = {zoo.show(folder).card.num_parameters, summary(folder).total, count_by_parameter(folder).total}
    planned = zoo.plan(folder, devices=1, seq_len=16).num_parameters
    facts = facts_of_model(json.loads((tmp_path / "config.json").read_text()))
    assert counts | {planned, facts["parameters"]} == {model.num_parameters()}
    assert "64 → 7" in str(zoo.show(folder).drawing) and "64 → 7" in facts["drawing"]
    differences = [(one.axis, one.a, one.b) for one in zoo.diff(folder, "bert-style@tiny", task)]
    assert {("num_labels", 7, 2), ("problem_type", "regression", None)} <= {*differences}


@pytest.mark.parametrize(
    "name",
    [
        "mixtral-style@tiny:num_experts=5,num_experts_per_tok=1",
        "hyper-connections@tiny:num_streams=2",
        "llama-style@tiny:num_attention_heads=8,num_key_value_heads=8",
        "gemma3-style@tiny:num_hidden_layers=4",
        "odom-style@tiny+faithful",
    ],
)
def test_a_model_is_drawn_as_its_name_is(name: str) -> None:
    portrait, model = zoo.show(built := zoo.build(name)), zoo.config(name)
    drawn = draw(name)
    assert (portrait.drawing.blocks, portrait.drawing.head) == (drawn.blocks, drawn.head)
    settings = {key: value for key, value in portrait.card.settings.items() if hasattr(model, key)}
    assert built.config.to_dict().items() >= settings.items()


def test_a_quirk_of_a_model_is_marked() -> None:
    model = zoo.build("vanilla@tiny+cross-attention-reuses-self", vocab_size=32)
    marked = {quirk for step in zoo.show(model).drawing.steps() for quirk in step.quirks}
    assert marked == {"cross-attention-reuses-self"}


def test_names_folders_and_weights_are_shown(tmp_path: Path) -> None:
    assert zoo.show("pre-norm", "masked-lm").drawing.task == "masked-lm"
    zoo.build("bert-style@tiny", vocab_size=32).save_pretrained(tmp_path)
    assert zoo.show(str(tmp_path)).card.settings["vocab_size"] == 32
    assert zoo.show("nlpt-encoder.language").drawing.task == "sequence-classification"


def test_what_is_no_model_of_the_zoo_is_refused() -> None:
    with pytest.raises(InputError, match="a Linear was given; give a model of the zoo"):
        zoo.show(torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(UnknownVariantError, match="did you mean 'vanilla'"):
        zoo.show("vanila")
    for show in (zoo.show, summary):
        with pytest.raises(UnknownVariantError, match="xxx"):
            show("x" * 300)
    with pytest.raises(UnknownOverrideError, match="did you mean 'hidden_size'"):
        zoo.describe("gpt2-style:hidden_sise=3")


def test_the_name_of_a_variant_comes_before_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.build("bert-style@tiny").save_pretrained(tmp_path / "vanilla")
    monkeypatch.chdir(tmp_path)
    assert zoo.show("vanilla").card.name == "vanilla" and zoo.show("./vanilla").card.name == "bert-style"
    for count in (lambda name: summary(name).total, lambda name: count_by_parameter(name).total):
        assert (count("vanilla"), count("./vanilla")) == (
            zoo.describe("vanilla").num_parameters,
            zoo.describe("bert-style@tiny").num_parameters,
        )


def test_whatever_the_zoo_answers_with_is_html_in_a_notebook() -> None:
    shown = {
        "norm_placement": zoo.describe("pre-norm"),
        "rmsnorm": zoo.config("llama-style@tiny"),
        "rotary": zoo.diff("pre-norm", "llama-style"),
        "lm_head": count_by_parameter("gpt2-style@tiny"),
        "self_attn": summary("gpt2-style@tiny"),
        "def forward": zoo.show_code("gpt2-style"),
        "layer 2": logit_lens("vanilla.en-pt", "Good morning."),
        "Cross-attention": attention("vanilla.en-pt", "Good morning."),
        "vs baseline": made_up(),
    }
    for word, answer in shown.items():
        page = answer._repr_html_()
        assert page.startswith('<div class="zoo-shown"><style>') and page.endswith("</div>")
        assert word in page, type(answer)
    assert "Good morning." in shown["Cross-attention"]._repr_html_()


def test_names_for_editors_are_what_is_registered() -> None:
    written = runpy.run_path(str(ROOT / "scripts/literals.py"))["modules"]()
    assert sorted(file.name for file in written) == ["keywords.py", "literals.py"]
    for file, text in written.items():
        assert text == file.read_text(encoding="utf-8"), "run scripts/literals.py"


@pytest.mark.parametrize("name", EACH)
def test_the_table_is_that_of_the_built_model(name):
    table = count_by_parameter(f"{name}@tiny", vocab_size=40)
    model = zoo.build(f"{name}@tiny", vocab_size=40)
    assert {row.name: row.shape for row in table.rows if row.shared_with is None} == {
        key: tuple(parameter.shape) for key, parameter in model.named_parameters()
    }
    assert table.total == sum(parameter.numel() for parameter in model.parameters())
    modules = by_module(table)
    assert sum(row.count * row.times for row in modules) == table.total and by_module(table, fold=False)[0].times == 1


def test_the_table_of_a_saved_model(tmp_path):
    zoo.build("mixtral-style@tiny", vocab_size=41).save_pretrained(tmp_path)
    table = count_by_parameter(str(tmp_path))
    assert dataclasses.replace(table, name="") == dataclasses.replace(
        count_by_parameter("mixtral-style@tiny:vocab_size=41"), name=""
    )


def test_shared_parameters_are_counted_once():
    rows = {row.name: row for row in count_by_parameter("marian-style@tiny").rows}
    tied = rows["lm_head.weight"]
    assert (tied.count, tied.shared_with) == (0, "model.encoder.embed_tokens.weight")
    assert rows["lm_head.bias"].count == 32000


def test_embeddings_of_tokens_and_positions_are_distinguished():
    table = count_by_parameter("pre-norm@tiny:vocab_size=10,max_position_embeddings=7")
    assert table.total - table.non_embedding == (10 + 7) * 64


def test_layers_that_differ_have_rows_of_their_own():
    table = count_by_parameter("universal@tiny")
    assert any(row.name.endswith("step_embedding") and row.times == 1 for row in by_module(table))
    layers = [row for row in by_module(count_by_parameter("pre-norm@tiny")) if "layers.*" in row.name]
    assert {row.times for row in layers} == {2}
