"""Folders that are broken or meant ill: one clear error, nothing executed, nothing written."""

import json
import os
import pickle
import re
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from command_line import run
from exploit import Exploit
from native_models import GPT2, native_model
from safetensors.torch import load_file, save_file

import zoo
from zoo.converters.errors import ConversionError, UnsafeFileError
from zoo.converters.native.files import read_weights

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32).save_pretrained(tmp_path / "native")
    return tmp_path / "native"


def convert(folder):
    out = folder.parent / "out"
    return run("convert", folder, "-o", out), out


def refused(folder, message, file=None):
    """The command fails with one line and writes no file; so does a file of weights alone."""
    before = sorted(folder.parent.iterdir())
    if file is not None:
        with pytest.raises(ConversionError, match=re.escape(message) or None):
            zoo.convert(file)
    result, out = convert(folder)
    assert result.exit_code == 2, result.output
    error = result.stderr.strip().splitlines()[-1]
    assert error.startswith("zoo: error: ") and message in error
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


def header(offsets):
    """A file of safetensors with two tensors of eight bytes, the second of them at some offsets."""
    tensors = {"transformer.wte.weight": [0, 8], "transformer.wpe.weight": offsets}
    entries = {name: {"dtype": "F32", "shape": [2], "data_offsets": place} for name, place in tensors.items()}
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(12)


DAMAGED = {
    "out of range": header([0, 9999999]),
    "overlapping": header([4, 12]),
    "reversed": header([12, 4]),
    "negative": header([-8, 0]),
    "huge": b"\xff" * 8,
    "short": struct.pack("<Q", 10) + b"{}",
    "empty": b"",
    "no JSON": struct.pack("<Q", 8) + b"not json" + bytes(12),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_headers_that_cannot_be(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "no valid safetensors file", folder / "model.safetensors")


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


def test_a_pickled_matrix_and_its_transpose_are_two_weights(folder):
    (folder / "model.safetensors").unlink()
    table = torch.arange(9.0).view(3, 3)
    torch.save({"table": table, "turned": table.T, "tied": table}, folder / "pytorch_model.bin")
    found = read_weights(folder)
    assert torch.equal(found["turned"], table.T) and torch.equal(found["table"], table)
    assert found["tied"] is found["table"]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code(folder, legacy):
    path, victim = pickled(folder), folder.parent / "victim"
    content = {**torch.load(path), "surprise": Exploit(victim)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    refused(folder, "holds more than tensors, nothing of it was executed", path)
    refused(folder, "(Unsupported global: GLOBAL io.open was not an allowed global by default)", path)
    path.write_bytes(pickle.dumps(content))
    refused(folder, "", path)
    assert not victim.exists()


def test_a_zip_bomb(folder):
    path = pickled(folder)
    torch.save({**torch.load(path), "zeros": torch.zeros(10**6)}, folder / "whole")
    with zipfile.ZipFile(folder / "whole") as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    refused(folder, "torch.save does not compress", path)


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": None, "mscale_all_dim": 1.0}
ABSENT = {"model_type": "transformer-zoo", "variant": "absent", "providers": {"variant": "zoo-absent"}}
CONFIGURATIONS = {
    "is no configuration": {"list": []},
    "no configuration that transformers reads": {
        "number": {"model_type": 3},
        "unknown": {"model_type": "no-such-model"},
        "text": {"model_type": "gpt2", "n_embd": "wide"},
        "code": {"model_type": "x", "auto_map": {"AutoConfig": "evil.Config"}},
        "cut": "{",
        "deep": "[" * 100000,
    },
    "cannot load": {
        "wide": {"model_type": "gpt2", "n_embd": 12000000, "architectures": ["GPT2LMHeadModel"]},
        "activation": {"model_type": "gpt2", "activation_function": "?", "architectures": ["GPT2LMHeadModel"]},
        "padding": {"model_type": "llama", "pad_token_id": 40000, "architectures": ["LlamaForCausalLM"]},
        "yarn": {"model_type": "deepseek_v3", "rope_parameters": YARN, "architectures": ["DeepseekV3ForCausalLM"]},
    },
    "as GPT2LMHeadModel: integer": {"heads": {"model_type": "gpt2", "n_head": 0, "architectures": ["GPT2LMHeadModel"]}},
    "zoo-absent": {"plugin": ABSENT},
}
"""Contents, as text or to be written as JSON, by the error."""


@pytest.mark.parametrize(
    ("message", "name"), [(message, name) for message, some in CONFIGURATIONS.items() for name in some]
)
def test_configurations(folder, message, name):
    (folder / "evil.py").write_text(f"open({str(folder.parent / 'victim')!r}, 'w')\nclass Config: pass\n")
    config = CONFIGURATIONS[message][name]
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    refused(folder, message)


def test_nan_weights_are_reported_and_kept(folder):
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.0.ln_1.weight"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    result, out = convert(folder)
    assert result.exit_code == 0
    assert "NaN or infinite weights: transformer.h.0.ln_1.weight" in result.stderr
    assert load_file(Path(out) / "model.safetensors")["model.layers.0.self_attn_residual.norm_in.weight"][0].isnan()


def test_a_whole_pickled_module_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(UnsafeFileError, match="save a state_dict"):
        zoo.convert(tmp_path / "model.pt")


def test_tensors_that_claim_more_than_the_file_holds_are_refused(folder):
    path = pickled(folder)
    torch.save({**torch.load(path), "transformer.wte.weight": torch.zeros(1, 16).expand(10**9, 16)}, path)
    with pytest.raises(UnsafeFileError, match=r"these tensors claim: transformer\.wte\.weight"):
        zoo.convert(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello world" * 50])
def test_broken_files_are_refused(content, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ConversionError):
        zoo.convert(path)


def test_a_file_without_tensors_is_named_without_advice_to_execute_it(tmp_path):
    path = tmp_path / "model.pt"
    path.write_text("{}")
    with pytest.raises(ConversionError, match=r"is no file that torch.save wrote.*\(Unsupported operand 123\)$"):
        zoo.convert(path)


def test_truncated_files_are_refused(folder):
    path = pickled(folder)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ConversionError):
        zoo.convert(path)
    with pytest.raises(ConversionError, match="is no file, nor a folder"):
        zoo.convert(folder / "absent.pt")
