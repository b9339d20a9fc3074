"""Shipped weights are small, whole, good enough, and as in their definitions and records."""

import json
import re
import runpy
import shutil
from collections import Counter
from pathlib import Path

import pytest

import zoo
from zoo.base.folders import RECORD_FILE
from zoo.base.manifest import describe
from zoo.building.weights import locate, locate_weights, read_record
from zoo.building.weights.built_in import SHIPPED, read_definitions
from zoo.building.weights.records import SHARED
from zoo.building.weights.tables import facts
from zoo.comparison.benchmarks import read_rows
from zoo.data.tasks import find_task
from zoo.data.tokenizers import load_tokenizers
from zoo.hub import parse_address
from zoo.hub.cards import CardFacts, write_card
from zoo.hub.records import recorded_limits
from zoo.registry import VARIANTS, find_weights
from zoo.training.record import digest_of_tokenizers, saved_run

MIB = 2**20
ROOT = Path(__file__).parents[2]
SHIPPED_NAMES = sorted(read_definitions("shipped"))
TRANSLATORS = [name for name in SHIPPED_NAMES if name.endswith(".en-pt")]
FIRST_TRIES = {
    "The water is cold.": "A água está fria.",
    "Hello.": "Olá.",
    "Hello, how are you?": "Olá, como você está?",
    "Good morning.": "Bom dia.",
    "Thank you.": "Obrigado.",
    "I love you.": "Eu amo você.",
    "I am tired.": "Eu estou cansado.",
    "My name is Maria.": "Meu nome é Maria.",
    "The cat is black.": "O gato é preto.",
    "What time is it?": "Que horas são?",
    "Where is the bathroom?": "Onde é o banheiro?",
    "The book is on the table.": "O livro está na mesa.",
    "Attention is all you need.": "Atenção é tudo de que você precisa.",
}


def test_what_ships_is_small_and_whole() -> None:
    found = [find_weights(name) for name in SHIPPED_NAMES]
    assert sum(weights.size or 0 for weights in found) <= 36 * MIB
    assert {folder.name for folder in SHIPPED.iterdir()} == set(SHIPPED_NAMES)
    for weights in found:
        files = {file.name for file in locate_weights(weights).iterdir() if file.name[0] != "."}
        assert files == {*weights.files, RECORD_FILE}
        assert weights.scores and weights.fingerprint and weights.versions and weights.data_license
        assert weights.command[:3] == ("zoo", "train", weights.command[2])
        assert weights.command[2].partition("+")[0] == weights.variant


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_tokenizers_are_those_of_the_record(name: str) -> None:
    run = saved_run(locate(name))
    assert run is not None and digest_of_tokenizers(load_tokenizers(locate(name))) == run.tokenizers


def test_equal_files_ship_once() -> None:
    stored = [file for folder in (*SHIPPED.iterdir(), SHARED) for file in folder.iterdir() if file.name[0] != "."]
    digests = Counter(describe(file).sha256 for file in stored)
    assert [file for file in stored if digests[describe(file).sha256] > 1] == [], (
        "run `python scripts/share_weights.py`"
    )
    needed = {digest.sha256 for name in SHIPPED_NAMES for digest in find_weights(name).files.values()}
    assert {file.stem for file in SHARED.iterdir()} <= needed


def test_equal_files_are_moved_to_one_place(tmp_path: Path) -> None:
    share = runpy.run_path(str(ROOT / "scripts/share_weights.py"))["share"]
    for name in ("a", "b"):
        (tmp_path / "shipped" / name).mkdir(parents=True)
        (tmp_path / "shipped" / name / "tokenizer.json").write_text("{}")
        (tmp_path / "shipped" / name / "config.json").write_text(json.dumps({"name": name}))
    assert len(share(tmp_path / "shipped", tmp_path / "shared")) == 2
    assert sorted(file.name for file in (tmp_path / "shipped").glob("*/*")) == ["config.json"] * 2
    assert [file.read_text() for file in (tmp_path / "shared").iterdir()] == ["{}"]
    assert share(tmp_path / "shipped", tmp_path / "shared") == []


@pytest.mark.parametrize("state", ["new", "kept", "damaged", "read-only"])
def test_a_name_gives_a_whole_folder(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files that weights share. A damaged copy is replaced, and the cache need not be writable."""
    place = "/proc/nowhere" if state == "read-only" else str(tmp_path)
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", place)
    if state in ("kept", "damaged"):
        earlier = locate("vanilla.en-pt")
        assert tmp_path in earlier.parents
        if state == "damaged":
            (earlier / "tokenizer.json").write_text("{}")
    folder = locate("vanilla.en-pt")
    assert (tmp_path in folder.parents) is (state != "read-only")
    assert zoo.generate(str(folder), ["The water is cold."])[0].text == FIRST_TRIES["The water is cold."]
    for name, digest in find_weights("vanilla.en-pt").files.items():
        assert describe(folder / name).sha256 == digest.sha256


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_records_agree_with_definitions(name: str) -> None:
    """A definition that was changed has been made again."""
    definition = read_definitions("shipped")[name]
    weights = read_record(SHIPPED / name)
    assert weights.command == ("zoo", "train", *definition["train"].split())
    assert {key: getattr(weights, key) for key in definition if key not in ("train", "generation")} == {
        key: value for key, value in definition.items() if key not in ("train", "generation")
    }
    assert weights.recipe == find_weights(name).recipe


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_scores_are_one_number_from_one_place(name: str) -> None:
    """The record has none of its own: cards read the same file."""
    from zoo.hub.records import find_results, recorded_license

    weights = find_weights(name)
    folder = Path(weights.source)
    assert "scores" not in json.loads((folder / RECORD_FILE).read_text())
    shown = {result["metric_type"]: result["metric_value"] for result in find_results(folder)}
    assert shown == pytest.approx({key: score.value for key, score in weights.scores.items()}, abs=1e-4)
    assert recorded_license(folder) == weights.license.lower()


def test_the_rows_of_the_results_are_the_same_numbers() -> None:
    results = runpy.run_path(str(ROOT / "scripts/bench/results.py"))
    rows = read_rows(results["RESULTS"])
    assert rows == results["rows_of_weights"](), "run `python scripts/bench/results.py`"
    assert sorted(row.variant for row in rows) == SHIPPED_NAMES
    for row in rows:
        assert row.values["heldout_loss"] == find_weights(row.variant).scores["loss"].value


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_are_good_enough(name: str) -> None:
    assert find_weights(name).scores["bleu"].value > 60


@pytest.mark.parametrize("name", TRANSLATORS)
def test_first_attempts_of_users_come_out_right_or_the_card_names_them(name: str) -> None:
    written = {one.prompt: one.text for one in zoo.generate(name, list(FIRST_TRIES))}
    wrong = [text for text, right in FIRST_TRIES.items() if written[text] != right]
    assert re.findall(r'"(.+?)"', find_weights(name).limits) == wrong
    assert not wrong or name not in ("vanilla.en-pt", "pre-norm.en-pt"), "which the documents show"


def test_recorded_limits_are_on_the_card(tmp_path: Path) -> None:
    folder = shutil.copytree(locate("explicando.en-pt"), tmp_path / "weights")
    record = json.loads((folder / RECORD_FILE).read_text())
    (folder / RECORD_FILE).write_text(json.dumps({**record, "limits": "it gets poems wrong"}))
    card = write_card(folder, parse_address("org/name"), CardFacts(limits=recorded_limits(folder)))
    assert "it gets poems wrong" in card.partition("## Limits")[2]
    assert dict(facts(read_record(folder)))["limits"] == "it gets poems wrong"


def test_labels_come_out_right() -> None:
    labels = zoo.predict("vanilla.language", ["The water is cold.", "A água está fria."])
    assert [label.label for label in labels] == ["English", "Portuguese"]


def test_definitions_of_native_checkpoints_name_a_commit() -> None:
    for name, definition in read_definitions("native").items():
        address = zoo.hub.parse_address(definition["source"])
        assert len(address.revision) == 40 and set(address.revision) <= set("0123456789abcdef"), name
        assert find_weights(name).variant in VARIANTS


@pytest.mark.parametrize("name", ["vanilla.language", "nlpt-encoder.language"])
def test_the_card_of_a_language_classifier_has_its_accuracy_on_short_texts(name: str) -> None:
    heldout = find_task("text-classification").load("languages").heldout
    limits = find_weights(name).limits
    for words, place in ((2, "two words it labels"), (1, "one word")):
        cut = [" ".join(text.rstrip(".!?").split()[:words]) for text in heldout["text"]]
        labels = [one.label for one in zoo.predict(name, cut)]
        right = sum(map(str.__eq__, labels, heldout["label"]))
        assert f"{place} {100 * right / len(cut):.1f} %" in limits
    assert "'great movie'" in limits and zoo.predict(name, ["great movie"])[0].label == "Portuguese"
