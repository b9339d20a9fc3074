"""Weights made again and verified, and weights with other heads and vocabularies than they were trained with."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, GenerationConfig

import zoo
from zoo.base.errors import CheckpointError, ConfigError, ZooWarning
from zoo.base.files import write_file
from zoo.base.folders import RESULT_FILE, read_result
from zoo.building.loading import NewHeadWarning
from zoo.building.weights import locate, locate_weights, read_record, write_record
from zoo.registry import RecordedScore, Weights, find_weights, register_weights
from zoo.training.reproduce import ScoreComparison, make_weights, store, verify_weights


def test_weights_verify() -> None:
    (found,) = verify_weights(["vanilla.language"])
    assert found.holds, found
    assert {score.key for score in found.scores} >= {"accuracy", "loss"}


def test_without_its_corpus_all_but_the_scores_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    (found,) = verify_weights(["llama-style.books"])
    assert found.holds and not found.scores and "zoo data get books" in str(found.unchecked)


def test_without_the_place_of_its_data_the_reason_is_named(registered: Weights) -> None:
    """As of a model that was trained on examples in memory."""
    folder = Path(registered.source)
    result = read_result(folder)
    write_file(folder / RESULT_FILE, json.dumps({**result, "data": {**result["data"], "source": None}}))
    register_weights(write_record(folder, registered), override=True)
    (found,) = verify_weights([registered.name])
    assert "given as objects" in str(found.problem)


def test_a_recorded_score_that_is_not_computed_is_a_problem(registered: Weights) -> None:
    scores = {**registered.scores, "rouge": RecordedScore("ROUGE", 1.0)}
    register_weights(replace(registered, scores=scores), override=True)
    (found,) = verify_weights([registered.name])
    assert not found.holds and found.problem == "no score rouge was computed, and its record has one"


def test_made_again_from_what_is_trained(tmp_path: Path) -> None:
    """From a trained folder on: float16, a record, the same scores."""
    made, scores = make_weights("vanilla.language", tmp_path / "again", trained=locate("vanilla.language"))
    assert made.dtype == "float16" and all(score.same and score.within_noise for score in scores)
    assert made.fingerprint == pytest.approx(find_weights("vanilla.language").fingerprint, abs=1e-4)
    read = read_record(tmp_path / "again")
    assert replace(read, source="") == replace(made, source="")
    assert locate_weights(read) == tmp_path / "again"
    with pytest.raises(ConfigError, match=r"gpt2-style\.openai has no record of its training"):
        make_weights("gpt2-style.openai", tmp_path / "no")


def test_settings_of_generation_are_written_where_training_left_none(tmp_path: Path) -> None:
    """By `zoo train` of a masked language model, which is loaded as a decoder too."""
    trained = locate("nlpt-encoder.mlm-en")
    assert not (trained / "generation_config.json").is_file()
    store(trained, tmp_path, {"do_sample": True, "temperature": 0.7})
    settings = GenerationConfig.from_pretrained(tmp_path)
    assert (settings.temperature, settings.eos_token_id) == (0.7, AutoConfig.from_pretrained(trained).eos_token_id)


@pytest.mark.parametrize(
    ("found", "interval", "expected"),
    [(82.0, (81.0, 83.0), True), (84.0, (83.0, 85.0), False), (84.0, None, True), (90.0, None, False)],
)
def test_noise(found: float, interval: tuple[float, float] | None, expected: bool) -> None:
    recorded = RecordedScore("BLEU", 82.5, None if interval is None else (82.0, 83.0))
    comparison = ScoreComparison("bleu", RecordedScore("BLEU", found, interval), recorded)
    assert comparison.within_noise is expected
    assert ScoreComparison("bleu", recorded, None).within_noise is None


def test_another_number_of_labels_makes_a_new_head_with_a_warning() -> None:
    old = zoo.build("vanilla.language")
    with pytest.warns(NewHeadWarning, match=r"new and random, because num_labels=5: .*classifier"):
        new = zoo.build("vanilla.language", num_labels=5)
    assert new.num_labels == 5
    kept = [
        name for name, tensor in new.state_dict().items() if torch.equal(tensor, old.state_dict().get(name, 0 * tensor))
    ]
    changed = sorted(set(new.state_dict()) - set(kept))
    assert changed and all("classifier" in name or "score" in name for name in changed)


def test_another_vocabulary_makes_new_embeddings_with_a_warning() -> None:
    with pytest.warns(NewHeadWarning, match=r"because vocab_size=30, decoder_vocab_size=30"):
        model = zoo.build("vanilla", weights="en-pt", vocab_size=30, decoder_vocab_size=30)
    assert model.get_input_embeddings().weight.shape[0] == 30
    with pytest.raises(CheckpointError, match="other sizes than hidden_size=32 asks for"):
        zoo.build("vanilla.en-pt", hidden_size=32)


def test_embeddings_of_other_tokens_are_named() -> None:
    old = zoo.load("vanilla.en-pt")
    size = {"kind": "bpe", "vocab_size": old.config.vocab_size, "lower_case": True}
    with pytest.warns(ZooWarning, match="tokens of vanilla.en-pt have other ids in the given tokenizer"):
        zoo.train("vanilla", init="vanilla.en-pt", tokenizer=size, max_steps=1, scored=False, progress=False)


@pytest.mark.slow
def test_training_starts_from_weights() -> None:
    result = zoo.train(
        "vanilla", recipe="small-translation", init="vanilla.en-pt", max_steps=1, scored=False, progress=False
    )
    recorded = find_weights("vanilla.en-pt").scores["loss"].value
    assert result.report.heldout_loss == pytest.approx(recorded, abs=0.01), "one step of a warm-up changes little"
    assert result.run.recipe.init == "vanilla.en-pt"
    with pytest.raises(ConfigError, match=r"vanilla\.en-pt holds weights of 'vanilla', and training 'd2l-style'"):
        zoo.train("d2l-style", init="vanilla.en-pt", max_steps=1, progress=False)
