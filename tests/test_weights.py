"""Weights by name: found, whole, what their records say; damaged, changed or unknown ones are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.cli.main import cli
from zoo.errors import (
    CheckpointError,
    ConfigError,
    NameCollisionError,
    RegistrationError,
    UnknownWeightsError,
)
from zoo.fingerprints import fingerprint
from zoo.loading import NewHeadWarning
from zoo.making import ScoreComparison, make_weights, verify_weights
from zoo.models.residual import Residual
from zoo.registry import (
    VARIANTS,
    WEIGHTS,
    FileDigest,
    RecordedScore,
    Weights,
    find_weights,
    list_weights,
    register_weights,
)
from zoo.weights import locate, locate_weights, read_record
from zoo.weights.built_in import SHIPPED, read_definitions
from zoo.weights.records import RECORD_FILE

MIB = 2**20
SHIPPED_NAMES = sorted(read_definitions("shipped"))
FIRST_TRIES = {
    "The water is cold.": "A água está fria.",
    "Hello.": "Olá.",
    "Hello, how are you?": "Olá, como você está?",
    "Good morning.": "Bom dia.",
    "Thank you.": "Obrigado.",
    "I love you.": "Eu amo você.",
    "My name is Maria.": "Meu nome é Maria.",
    "The cat is black.": "O gato é preto.",
    "Where is the bathroom?": "Onde é o banheiro?",
    "The book is on the table.": "O livro está na mesa.",
    "Attention is all you need.": "Atenção é tudo de que você precisa.",
}


@pytest.fixture
def copied(tmp_path: Path) -> Weights:
    """Weights that ship, in a folder of the test's own, as a plugin might bring them."""
    folder = tmp_path / "vanilla.mine"
    shutil.copytree(SHIPPED / "vanilla.language", folder)
    return replace(find_weights("vanilla.language"), name="vanilla.mine", source=str(folder))


@pytest.fixture
def registered(copied: Weights) -> Iterator[Weights]:
    """The same under a name of their own."""
    register_weights(copied)
    yield copied
    del WEIGHTS._items[copied.name]


# Names


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


@pytest.mark.parametrize("given", [{"faithful": True}, {"seed": 1}, {"quirks": ["dropout-on-the-skip"]}])
def test_trained_weights_take_no_settings_of_new_ones(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"as it was trained, so it takes no {next(iter(given))}"):
        zoo.build("vanilla.en-pt", **given)


def test_other_weights_may_be_registered_but_not_over_these(registered: Weights) -> None:
    assert zoo.build("vanilla.mine").config.variant == "vanilla"
    register_weights(registered)  # as a notebook's cell does that is run again
    with pytest.raises(NameCollisionError, match=r"'vanilla\.en-pt' of .*exists already, from zoo\.weights\.built_in"):
        register_weights(replace(registered, name="vanilla.en-pt"))
    for name in ("vanilla", "vanilla.", ".en", "vanilla.en pt", "van/illa.en"):
        with pytest.raises(RegistrationError, match="VARIANT.TAG"):
            replace(registered, name=name)


@given(st.text(alphabet="vanil.-_+@:/ p", max_size=20))
def test_no_text_breaks_the_look_up(text: str) -> None:
    try:
        assert isinstance(locate(text), Path)
    except zoo.errors.ZooError as error:
        assert "\n" not in str(error)


# Heads


def test_another_number_of_labels_makes_a_new_head_and_says_so() -> None:
    old = zoo.build("vanilla.language")
    with pytest.warns(NewHeadWarning, match=r"new and random, because num_labels=5: .*classifier"):
        new = zoo.build("vanilla.language", num_labels=5)
    assert new.num_labels == 5
    kept = [
        name for name, tensor in new.state_dict().items() if torch.equal(tensor, old.state_dict().get(name, 0 * tensor))
    ]
    changed = sorted(set(new.state_dict()) - set(kept))
    assert changed and all("classifier" in name or "score" in name for name in changed)


def test_another_vocabulary_makes_new_embeddings_and_says_so() -> None:
    with pytest.warns(NewHeadWarning, match=r"because vocab_size=30"):
        model = zoo.build("vanilla", weights="en-pt", vocab_size=30)
    assert model.get_input_embeddings().weight.shape[0] == 30
    with pytest.raises(CheckpointError, match="other sizes than hidden_size=32 asks for"):
        zoo.build("vanilla.en-pt", hidden_size=32)


# Damage


@pytest.mark.parametrize("name", sorted(find_weights("vanilla.language").files))
def test_a_flipped_byte_in_any_file_is_refused(copied: Weights, name: str) -> None:
    file = Path(copied.source) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"vanilla\.mine is damaged: {name} in .*not what was recorded"):
        locate_weights(copied)


@pytest.mark.parametrize("name", sorted(find_weights("vanilla.language").files))
def test_a_missing_file_is_refused(copied: Weights, name: str) -> None:
    (Path(copied.source) / name).unlink()
    with pytest.raises(CheckpointError, match=rf"vanilla\.mine is not whole: .* lacks {name}"):
        locate_weights(copied)


def test_half_a_file_is_refused(copied: Weights) -> None:
    file = Path(copied.source) / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=r"is damaged: model\.safetensors"):
        locate_weights(copied)


def test_a_wrong_hash_or_no_record_is_refused(copied: Weights) -> None:
    wrong = FileDigest(copied.files["config.json"].size, "0" * 64)
    with pytest.raises(CheckpointError, match=r"is damaged: config\.json"):
        locate_weights(replace(copied, files={**copied.files, "config.json": wrong}))
    with pytest.raises(CheckpointError, match=r"lacks its record, weights\.json"):
        locate_weights(replace(copied, files={}))
    record = Path(copied.source) / RECORD_FILE
    for content in ("{", "[]", "{}", '{"files": 1}', '{"files": {"a": {}}}'):
        record.write_text(content)
        with pytest.raises(CheckpointError, match="damaged"):
            read_record(record.parent)
    record.unlink()
    with pytest.raises(CheckpointError, match=r"weights\.json is missing"):
        read_record(record.parent)


@pytest.mark.parametrize("options", [{}, {"dtype": "float16"}, {"num_labels": 7}], ids=["plain", "dtype", "head"])
def test_weights_of_a_variant_whose_code_changed_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    forward = Residual.forward

    def scaled(self: Residual, hidden_states: torch.Tensor, *args: object, **kwargs: object) -> object:
        return forward(self, hidden_states * 1.01, *args, **kwargs)

    monkeypatch.setattr(Residual, "forward", scaled)
    with pytest.raises(CheckpointError, match=r"no longer compute what they did.*code of variant 'vanilla'"):
        zoo.build("vanilla.language", **options)
    (verified,) = verify_weights(["vanilla.language"], scores=False)
    assert not verified.holds and "no longer compute" in str(verified.problem)


def test_a_fingerprint_survives_rounding_and_nothing_more() -> None:
    model = zoo.build("vanilla.en-pt")
    recorded = find_weights("vanilla.en-pt").fingerprint
    assert fingerprint(model) == pytest.approx(recorded, rel=1e-4, abs=1e-4)
    with torch.no_grad():
        model.get_input_embeddings().weight[37] += 0.1
    assert fingerprint(model) != pytest.approx(recorded, rel=1e-2, abs=1e-2)


# What ships


def test_what_ships_is_small_and_whole() -> None:
    found = [find_weights(name) for name in SHIPPED_NAMES]
    assert sum(weights.size or 0 for weights in found) <= 12 * MIB
    assert {folder.name for folder in SHIPPED.iterdir()} == set(SHIPPED_NAMES)
    for weights in found:
        files = {file.name for file in Path(weights.source).iterdir() if file.name[0] != "."}
        assert files == {*weights.files, RECORD_FILE}
        assert weights.scores and weights.fingerprint and weights.versions and weights.data_license
        assert weights.command[:3] == ("zoo", "train", weights.command[2])
        assert weights.command[2].partition("+")[0] == weights.variant


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_records_say_what_definitions_say(name: str) -> None:
    """A definition that was changed has been made again."""
    definition = read_definitions("shipped")[name]
    weights = find_weights(name)
    assert weights.command == ("zoo", "train", *definition["train"].split())
    assert {key: getattr(weights, key) for key in definition if key != "train"} == {
        key: value for key, value in definition.items() if key != "train"
    }


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_scores_are_one_number_from_one_place(name: str) -> None:
    """The record has none of its own: cards read the same file."""
    from zoo.hub.records import find_results, recorded_license

    weights = find_weights(name)
    folder = Path(weights.source)
    assert "scores" not in json.loads((folder / RECORD_FILE).read_text())
    told = {result["metric_type"]: result["metric_value"] for result in find_results(folder)}
    assert told == pytest.approx({key: score.value for key, score in weights.scores.items()}, abs=1e-4)
    assert recorded_license(folder) == weights.license.lower()


def test_translators_are_good_enough() -> None:
    for name in SHIPPED_NAMES:
        if find_weights(name).task == "seq2seq-lm" and not name.endswith("-faithful"):
            assert find_weights(name).scores["bleu"].value > 60, name


def test_what_users_try_first_comes_out_right() -> None:
    written = zoo.generate("vanilla.en-pt", list(FIRST_TRIES))
    assert {one.prompt: one.text for one in written} == FIRST_TRIES


def test_labels_come_out_right() -> None:
    labels = zoo.predict("vanilla.language", ["The water is cold.", "A água está fria."])
    assert [label.label for label in labels] == ["English", "Portuguese"]


def test_definitions_of_native_checkpoints_name_a_commit() -> None:
    for name, definition in read_definitions("native").items():
        address = zoo.hub.parse_address(definition["source"])
        assert len(address.revision) == 40 and set(address.revision) <= set("0123456789abcdef"), name
        assert find_weights(name).variant in VARIANTS


# Making and verifying


def test_weights_verify(tmp_path: Path) -> None:
    (found,) = verify_weights(["vanilla.language"])
    assert found.holds, found
    assert {score.key for score in found.scores} >= {"accuracy", "loss"}


def test_made_again_from_what_is_trained(tmp_path: Path) -> None:
    """From a trained folder on: float16, a record, the same scores."""
    made, scores = make_weights("vanilla.language", tmp_path / "again", trained=SHIPPED / "vanilla.language")
    assert made.dtype == "float16" and all(score.same and score.within_noise for score in scores)
    assert made.fingerprint == pytest.approx(find_weights("vanilla.language").fingerprint, abs=1e-4)
    read = read_record(tmp_path / "again")
    assert replace(read, source="") == replace(made, source="")
    assert locate_weights(read) == tmp_path / "again"
    with pytest.raises(ConfigError, match=r"nothing says how gpt2-style\.openai was trained"):
        make_weights("gpt2-style.openai", tmp_path / "no")


@pytest.mark.parametrize(
    ("found", "interval", "expected"),
    [(82.0, (81.0, 83.0), True), (84.0, (83.0, 85.0), False), (84.0, None, True), (90.0, None, False)],
)
def test_noise(found: float, interval: tuple[float, float] | None, expected: bool) -> None:
    recorded = RecordedScore("BLEU", 82.5, None if interval is None else (82.0, 83.0))
    comparison = ScoreComparison("bleu", RecordedScore("BLEU", found, interval), recorded)
    assert comparison.within_noise is expected
    assert ScoreComparison("bleu", recorded, None).within_noise is None


# On the command line


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
    assert "ok" in run("weights", "verify", "--quick")


def test_verbs_take_names_where_they_take_folders(tmp_path: Path) -> None:
    assert run("generate", "vanilla.en-pt", "The water is cold.") == "A água está fria.\n"
    assert run("predict", "vanilla.language", "The water is cold.").startswith("English\t")
    assert "BLEU" in run("evaluate", "vanilla.en-pt", "--n-bootstrap", "1", "--quiet")
    assert "would push" in run("push", "vanilla.en-pt", "org/name", "--dry-run").lower()
    run("attention", "vanilla.en-pt", "--source", "The water is cold.", "-o", str(tmp_path / "attention"))
    run("export", "vanilla.language", "--plan")


def test_training_starts_from_weights(tmp_path: Path) -> None:
    result = zoo.train(
        "vanilla", recipe="small-translation", init="vanilla.en-pt", max_steps=1, scored=False, progress=False
    )
    recorded = find_weights("vanilla.en-pt").scores["loss"].value
    assert result.report.heldout_loss == pytest.approx(recorded, abs=0.01), "one step of a warm-up changes little"
    assert result.run.recipe.init == "vanilla.en-pt"
    with pytest.raises(ConfigError, match=r"vanilla\.en-pt holds weights of 'vanilla', and training 'd2l-style'"):
        zoo.train("d2l-style", init="vanilla.en-pt", max_steps=1, progress=False)
