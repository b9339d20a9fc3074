"""Names of weights: found, listed, registered, taken by other things, misspelt, and on the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.base.errors import (
    CheckpointError,
    ConfigError,
    NameCollisionError,
    RegistrationError,
    UnknownWeightsError,
)
from zoo.building.weights import locate
from zoo.cli.main import cli
from zoo.registry import Weights, find_weights, list_weights, register_weights


def test_names_lead_to_models() -> None:
    by_name = zoo.build("vanilla.en-pt")
    by_tag = zoo.build("vanilla", weights="en-pt")
    assert not by_name.training and by_name.dtype == torch.float32
    for name, tensor in by_name.state_dict().items():
        assert torch.equal(tensor, by_tag.state_dict()[name])
    assert "vanilla.en-pt" in zoo.list_weights("*.en-pt", task="seq2seq-lm")
    assert zoo.list_weights("*.en-pt", task="masked-lm") == []
    assert zoo.list_weights(("vanilla.*", "!*faithful")) == [
        name for name in zoo.list_weights("vanilla.*") if not name.endswith("faithful")
    ]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("vanilla.en-tp", "vanilla.en-pt"), ("vanila.en-pt", "vanilla.en-pt"), ("vanilla.EN_PT", "vanilla.en-pt")],
)
def test_an_unknown_name_leads_to_the_nearest(name: str, nearest: str) -> None:
    for use in (zoo.build, zoo.load, locate, lambda name: zoo.generate(name, "x"), find_weights):
        with pytest.raises(UnknownWeightsError) as caught:
            use(name)
        assert caught.value.nearest == nearest


def test_a_name_of_a_variant_is_refused_with_its_weights() -> None:
    for name, tag in (("vanilla", None), ("vanilla", "pt"), ("vanilla.pt", None)):
        with pytest.raises(UnknownWeightsError) as caught:
            find_weights(name, tag)
        assert caught.value.given == (name if tag is None else f"{name}.{tag}")
        assert list(caught.value.valid) == zoo.list_weights("vanilla.*")


def test_what_names_no_weights_is_left_alone(tmp_path: Path) -> None:
    assert locate(tmp_path) == tmp_path
    assert locate("some/where/else/deep") == Path("some/where/else/deep")
    assert locate("vanilla.pt") == Path("vanilla.pt"), "a file that is missing"
    with pytest.raises(CheckpointError, match=r"'vanilla' is a variant, without weights.*vanilla\.en-pt"):
        zoo.generate("vanilla", "x")


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vanilla.en-pt").mkdir()
    assert locate("vanilla.en-pt") == Path("vanilla.en-pt")


@pytest.mark.parametrize("given", [{"faithful": True}, {"seed": 0}, {"quirks": ["dropout-on-the-skip"]}])
def test_trained_weights_take_no_settings_of_new_ones(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"as it was trained, so it takes no {next(iter(given))}"):
        zoo.build("vanilla.en-pt", **given)


def test_other_weights_may_be_registered_but_not_over_these(registered: Weights) -> None:
    assert zoo.build("vanilla.mine").config.variant == "vanilla"
    register_weights(registered)  # as a notebook's cell does that is run again
    with pytest.raises(
        NameCollisionError, match=r"'vanilla\.en-pt' of .*exists already, from zoo\.building\.weights\.built_in"
    ):
        register_weights(replace(registered, name="vanilla.en-pt"))
    for name in ("vanilla", "vanilla.", ".en", "vanilla.en pt", "van/illa.en"):
        with pytest.raises(RegistrationError, match="VARIANT.TAG"):
            replace(registered, name=name)


@given(st.text(alphabet="vanil.-_+@:/ p", max_size=20))
def test_no_text_breaks_the_look_up(text: str) -> None:
    try:
        assert isinstance(locate(text), Path)
    except zoo.base.errors.ZooError as error:
        assert "\n" not in str(error)


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": None}).invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_lists_shows_and_verifies() -> None:
    assert run("weights").count("\n") == len(list_weights()) + 1
    assert [one["name"] for one in json.loads(run("weights", "list", "*.en-pt", "--json"))] == list_weights("*.en-pt")
    score = find_weights("vanilla.en-pt").scores["bleu"]
    for output in (run("weights"), run("weights", "show", "vanilla.en-pt"), run("show", "vanilla")):
        assert str(score) in output
    assert run("show", "vanilla.en-pt") == run("weights", "show", "vanilla.en-pt")
    verified = run("weights", "verify", "--quick").splitlines()
    assert [line.split() for line in verified] == [
        [name, "ok"] for name in list_weights() if not find_weights(name).on_hub
    ]
    (found,) = json.loads(run("weights", "verify", "--quick", "vanilla.language", "--json"))
    assert found == {"name": "vanilla.language", "holds": True, "problem": None, "scores": []}


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_terminal_is_not_overrun(columns: int) -> None:
    lines = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, ["weights"]).stdout.splitlines()
    assert max(map(len, lines)) <= columns and len(lines) < 4 * len(list_weights())
    (line,) = (line for line in lines if line.startswith("vanilla.en-pt "))
    assert f"BLEU {find_weights('vanilla.en-pt').scores['bleu']}" in line and "Translates everyday" in line


def test_what_matches_nothing_is_said_and_is_no_error() -> None:
    result = CliRunner().invoke(cli, ["weights", "list", "vanila.en-pt"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "zoo: no weights match 'vanila.en-pt'; did you mean 'vanilla.en-pt'?\n"


@pytest.mark.slow
def test_verbs_take_names_where_they_take_folders(tmp_path: Path) -> None:
    assert run("generate", "vanilla.en-pt", "The water is cold.") == "A água está fria.\n"
    assert run("predict", "vanilla.language", "The water is cold.").startswith("English\t")
    assert "BLEU" in run("evaluate", "vanilla.en-pt", "--n-bootstrap", "1", "--quiet")
    assert "would push" in run("push", "vanilla.en-pt", "org/name", "--dry-run").lower()
    run("attention", "vanilla.en-pt", "--source", "The water is cold.", "-o", str(tmp_path / "attention"))
    run("export", "vanilla.language", "--plan")
