"""The manifest of a saved folder's files, and what loading makes of it."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import zoo
from zoo.base.errors import CheckpointError, ZooWarning
from zoo.base.manifest import MANIFEST_FILE, describe, read_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zoo.build("pre-norm@tiny", "causal-lm", vocab_size=40, seed=0).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def flip(file: Path, place: int = -100) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_every_flipped_byte_of_the_weights_is_found(folder: Path) -> None:
    size = (folder / "model.safetensors").stat().st_size
    for place in (0, 9, 500, size // 2, size - 1):
        flip(folder / "model.safetensors", place)
        with pytest.raises(CheckpointError, match="weights|damaged"):
            zoo.load(folder)
        flip(folder / "model.safetensors", place)
    zoo.load(folder)


@pytest.mark.parametrize("how", ["a manifest without XXH3", "no xxhash installed"])
def test_older_manifests_and_machines_without_xxhash_compare_by_sha256(folder: Path, monkeypatch, how: str) -> None:
    if "installed" in how:
        monkeypatch.setattr(zoo.base.manifest, "xxhash", None)
    else:
        written = json.loads((folder / MANIFEST_FILE).read_text())
        for entry in written["files"].values():
            del entry["xxh3_128"]
        (folder / MANIFEST_FILE).write_text(json.dumps(written))
    zoo.load(folder)
    flip(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="are not those that were saved"):
        zoo.load(folder)


def test_the_hashes_are_those_of_any_other_tool(tmp_path: Path) -> None:
    for content in (b"", b"abc", bytes(range(256)) * 9000):
        (tmp_path / "file").write_bytes(content)
        found = describe(tmp_path / "file")
        assert (found.size, found.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert found.xxh3_128 == xxhash.xxh3_128_hexdigest(content) and found.is_content_of(tmp_path / "file")


def test_the_message_names_two_ways_out(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    changed = {**weights, "lm_head.weight": weights["lm_head.weight"] + 1}
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    ways = r"remove \.zoo-manifest\.json, or load with verify=False"
    with pytest.raises(CheckpointError, match=ways):
        zoo.load(folder)
    with pytest.warns(ZooWarning, match=ways):
        AutoModelForCausalLM.from_pretrained(folder)
    for load in (zoo.load, AutoModelForCausalLM.from_pretrained):
        assert torch.equal(load(folder, verify=False).lm_head.weight, changed["lm_head.weight"])
    (folder / MANIFEST_FILE).unlink()
    zoo.load(folder)


def test_a_configuration_may_be_edited(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dropout": 0.5}))
    assert zoo.load(folder).config.dropout == 0.5


def test_saving_again_is_no_damage(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    model = zoo.load(folder)
    model.lm_head.weight.data += 1
    model.save_pretrained(folder)
    assert torch.equal(zoo.load(folder).lm_head.weight, model.lm_head.weight)
    names = set(read_manifest(folder))
    assert names == {file.name for file in folder.iterdir()} - {"notes.txt", MANIFEST_FILE}


def test_a_folder_without_a_manifest_loads(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()
    flip(folder / "model.safetensors")
    zoo.load(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": {"a": {"size": 1}}}', "[" * 100_000])
def test_a_damaged_manifest_is_named(folder: Path, text: str) -> None:
    (folder / MANIFEST_FILE).write_text(text)
    with pytest.raises(CheckpointError, match="is damaged; remove it"):
        zoo.load(folder)


def test_pushing_by_transformers_leaves_the_manifest_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import hub

    pushed: list[str] = []

    class Client:
        def create_commit(self, operations: list[object], **kwargs: object) -> None:
            pushed.extend(operation.path_in_repo for operation in operations)  # type: ignore[attr-defined]

    monkeypatch.setattr(hub, "hf_api", Client)
    zoo.load(folder)._upload_modified_files(folder, "me/model", {})
    assert {"config.json", "model.safetensors"} <= set(pushed) and MANIFEST_FILE not in pushed
