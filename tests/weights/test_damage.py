"""Damaged files, records and code: each is one error, and nothing is loaded."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import zoo
from zoo.base.errors import CheckpointError
from zoo.base.folders import RECORD_FILE
from zoo.building.fingerprints import fingerprint
from zoo.building.weights import locate_weights, read_record
from zoo.models.residual import Residual
from zoo.registry import FileDigest, Weights, find_weights
from zoo.training.reproduce import verify_weights


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
    with pytest.raises(CheckpointError, match=r"lacks a record that can be read \(weights\.json\)"):
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
def test_weights_of_a_variant_with_changed_code_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    forward = Residual.forward

    def scaled(self: Residual, hidden_states: Tensor, *args: object, **kwargs: object) -> object:
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
