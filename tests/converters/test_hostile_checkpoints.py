"""Files of weights that are broken or meant ill: one clear error, nothing executed."""

import pickle
import struct
import zipfile

import pytest
import torch
from exploit import Exploit
from oracles import vanilla

import zoo
from zoo.converters.errors import ConversionError, UnsafeFileError


def convert_vanilla(path):
    return zoo.convert(path, num_attention_heads=3, pad_token_id=1, decoder_pad_token_id=2)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_not_run(legacy, tmp_path):
    path, victim = tmp_path / "model.pt", tmp_path / "victim"
    content = {**vanilla.random_state_dict(), "surprise": Exploit(victim)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UnsafeFileError, match="holds more than tensors, nothing of it was executed"):
        convert_vanilla(path)
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(ConversionError):
        convert_vanilla(path)
    assert not victim.exists()


def test_a_whole_pickled_module_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(UnsafeFileError, match="save a state_dict"):
        zoo.convert(tmp_path / "model.pt")


def test_a_zip_bomb_is_refused(tmp_path):
    stored, bomb = tmp_path / "stored.pt", tmp_path / "bomb.pt"
    torch.save({**vanilla.random_state_dict(), "zeros": torch.zeros(10**6)}, stored)
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    assert bomb.stat().st_size < stored.stat().st_size / 10
    with pytest.raises(UnsafeFileError, match="torch.save does not compress"):
        convert_vanilla(bomb)


def test_tensors_that_claim_more_than_the_file_holds_are_refused(tmp_path):
    weights = {**vanilla.random_state_dict(), "encoder.tok_emb.weight": torch.zeros(1, 12).expand(10**9, 12)}
    torch.save(weights, tmp_path / "model.pt")
    with pytest.raises(UnsafeFileError, match=r"these tensors claim: encoder\.tok_emb\.weight"):
        convert_vanilla(tmp_path / "model.pt")


@pytest.mark.parametrize(
    "header",
    [
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}',
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,9999999]}}',
        b"not json",
    ],
)
def test_broken_safetensors_headers_are_refused(header, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    with pytest.raises(ConversionError, match="no valid safetensors file"):
        zoo.convert(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello world" * 50])
def test_broken_files_are_refused(content, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ConversionError):
        zoo.convert(path)


def test_truncated_files_are_refused(tmp_path):
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    torch.save(vanilla.random_state_dict(), whole)
    cut.write_bytes(whole.read_bytes()[:-500])
    with pytest.raises(ConversionError):
        convert_vanilla(cut)
    with pytest.raises(ConversionError, match="is not a file"):
        zoo.convert(tmp_path / "absent.pt")
