"""Folders that are broken or meant ill: one clear error, nothing executed, nothing written."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from exploit import Exploit
from native_models import GPT2, native_model
from safetensors.torch import load_file, save_file

from zoo.cli.main import cli
from zoo.converters.native.files import read_weights

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32).save_pretrained(tmp_path / "native")
    return tmp_path / "native"


def convert(folder, *arguments):
    out = folder.parent / "out"
    result = CliRunner(env={"COLUMNS": None}).invoke(cli, ["convert", str(folder), "-o", str(out), *arguments])
    return result, out


def refused(folder, says, *arguments):
    """The command fails with one line, and leaves nothing beside what was there."""
    before = sorted(folder.parent.iterdir())
    result, out = convert(folder, *arguments)
    assert result.exit_code == 2, result.output
    error = result.stderr.strip().splitlines()[-1]
    assert error.startswith("zoo: error: ") and says in error
    assert "Traceback" not in result.output
    assert not out.exists()
    assert sorted(folder.parent.iterdir()) == before


def name_elsewhere(folder, name):
    """Make an index name a file that exists, but elsewhere."""
    weights = folder / "model.safetensors"
    names = list(load_file(weights))
    weights.rename(folder.parent / "elsewhere.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, name)}))


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "{parent}/elsewhere.safetensors", "..\\elsewhere", ".."])
def test_an_index_that_names_files_elsewhere(folder, name):
    name_elsewhere(folder, name.format(parent=folder.parent))
    refused(folder, "which is not a file of its own folder")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "merges.txt"])
def test_links_out_of_the_folder(folder, file):
    if not (folder / file).exists():
        (folder / file).write_text("secret")
    (folder / file).rename(folder.parent / "elsewhere")
    (folder / file).symlink_to("../elsewhere")
    refused(folder, "is a link out of its folder")


def test_links_of_the_cache_are_followed(folder):
    blobs, snapshot = folder.parent / "hub" / "blobs", folder.parent / "hub" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        path.rename(blobs / path.name)
        os.symlink(f"../../blobs/{path.name}", snapshot / path.name)
    assert convert(snapshot)[0].exit_code == 0


@pytest.mark.parametrize(
    "index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "gone.safetensors"}}']
)
def test_damaged_indexes(folder, index):
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(index)
    refused(folder, INDEX)


@pytest.mark.parametrize(
    "offsets", [[0, 9999999], [4, 12], [12, 4], [-8, 0]], ids=["out of range", "overlapping", "reversed", "negative"]
)
def test_offsets_that_cannot_be(folder, offsets):
    first = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    second = {"dtype": "F32", "shape": [2], "data_offsets": offsets}
    header = json.dumps({"transformer.wte.weight": first, "transformer.wpe.weight": second}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(12)
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "is no valid safetensors file")


@pytest.mark.parametrize("header", [b"\xff" * 8, struct.pack("<Q", 10) + b"{}", b""], ids=["huge", "short", "empty"])
def test_headers_that_cannot_be(folder, header):
    (folder / "model.safetensors").write_bytes(header)
    refused(folder, "is no valid safetensors file")


def pickled(folder):
    """The same weights as torch.save writes them."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def test_pickled_weights_are_read_without_executing_anything(folder):
    expected = read_weights(folder)
    pickled(folder)
    assert all(torch.equal(value, expected[name]) for name, value in read_weights(folder).items())
    assert convert(folder)[0].exit_code == 0


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code(folder, legacy):
    path, victim = pickled(folder), folder.parent / "victim"
    content = {**torch.load(path), "surprise": Exploit(victim)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    refused(folder, "holds more than tensors, nothing of it was executed")
    path.write_bytes(pickle.dumps(content))
    refused(folder, "")
    assert not victim.exists()


def test_a_zip_bomb(folder):
    path = pickled(folder)
    torch.save({**torch.load(path), "zeros": torch.zeros(10**6)}, folder / "whole")
    with zipfile.ZipFile(folder / "whole") as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    refused(folder, "torch.save does not compress")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("[]", "is no configuration"),
        ("{", "no configuration that transformers reads"),
        ("[" * 100000, "no configuration that transformers reads"),
        ('{"model_type": 3}', "no configuration that transformers reads"),
        ('{"model_type": "gpt2", "n_embd": "wide"}', "no configuration that transformers reads"),
        ('{"model_type": "gpt2", "n_embd": 12000000, "architectures": ["GPT2LMHeadModel"]}', "cannot load"),
        ('{"model_type": "x", "auto_map": {"AutoConfig": "evil.Config"}}', "no configuration that transformers reads"),
        (
            '{"model_type": "transformer-zoo", "variant": "absent", "providers": {"variant": "zoo-absent"}}',
            "zoo-absent",
        ),
    ],
    ids=["list", "cut", "deep", "number", "text", "wide", "code", "missing plugin"],
)
def test_configurations(folder, config, says):
    (folder / "evil.py").write_text(f"open({str(folder.parent / 'victim')!r}, 'w')\nclass Config: pass\n")
    (folder / "config.json").write_text(config)
    refused(folder, says)


def test_nan_weights_are_reported_and_kept(folder):
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.0.ln_1.weight"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    result, out = convert(folder)
    assert result.exit_code == 0
    assert "NaN or infinite weights: transformer.h.0.ln_1.weight" in result.stderr
    assert load_file(Path(out) / "model.safetensors")["model.layers.0.self_attn_residual.norm_in.weight"][0].isnan()
