"""Weights made again, and verified."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig, GenerationConfig

from zoo.base.errors import ConfigError
from zoo.base.files import write_file
from zoo.base.folders import RESULT_FILE, read_result
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
