"""Prepared shards: how damage is found, and what reading them takes."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from zoo.base.errors import DataError
from zoo.base.manifest import sha256_of
from zoo.data.corpora import shards
from zoo.data.corpora.preparing import prepare
from zoo.data.corpora.shards import VERIFIED, Manifest, ShardRecord, TokenRow, read_manifest
from zoo.data.corpora.sources import Piece
from zoo.data.tasks.blocks import TokenBlocks
from zoo.training.sampling import ShuffledBlocks

from .conftest import DOCUMENTS, jsonl


def test_a_shard_of_held_out_documents_has_no_words_to_count():
    full, none = (ShardRecord("a", tokens, 1, 9, ("", ""), words=tokens) for tokens in (5, 0))
    assert Manifest("", "", "", {}, [full, none]).words == 5
    assert Manifest("", "", "", {}, [full, replace(full, words=0)]).words == 0


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    """Change a bit of the last id or length, and nothing of the size."""
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def prepared(tokenizers, tmp_path_factory):
    """A folder of several shards."""
    folder = tmp_path_factory.mktemp("prepared")
    source = jsonl(folder / "a.jsonl", DOCUMENTS)
    size = source.stat().st_size // 3
    assert len(prepare(source, tokenizers, folder / "out", aside=False, progress=False, shard_bytes=size).shards) > 2
    return folder / "out"


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, "is truncated"),
        (empty, "is truncated|not a whole shard"),
        (Path.unlink, "not a whole shard: .*No such file"),
        (flip, "is damaged: its SHA-256 is not the recorded one"),
    ],
)
def test_a_damaged_shard_among_whole_ones_is_named(prepared, tmp_path, suffix, damage, message):
    out = shutil.copytree(prepared, tmp_path / "out")
    read_manifest(out).row(out)
    damage(out / f"shards/shard-00001{suffix}")
    with pytest.raises(DataError, match=f"shard-00001.*({message}).*; remove its folder, and prepare the data again"):
        read_manifest(out).row(out)


def test_shards_are_compared_with_their_hashes_once_and_again_after_a_change(prepared, tmp_path, monkeypatch):
    out = shutil.copytree(prepared, tmp_path / "out")
    made = read_manifest(out)
    compared: list[str] = []

    def counted(file: Path) -> str:
        compared.append(file.name)
        return sha256_of(file)

    monkeypatch.setattr(shards, "sha256_of", counted)
    made.row(out)
    assert sorted(compared) == sorted(one.name for one in (out / "shards").glob("shard-*.*") if one.suffix != ".json")
    compared.clear()
    made.row(out)
    assert compared == []
    os.utime(out / "shards/shard-00001.bin", ns=(1, 1))
    made.row(out)
    assert compared == ["shard-00001.bin"]
    (out / VERIFIED).write_text("[1]")
    made.row(out)
    assert len(compared) == 1 + 2 * len(made.shards)


def test_an_empty_row_has_no_ids():
    assert len(TokenRow([])) == 0 and TokenRow([])[0:5].tolist() == [] and Piece("a").last


def anonymous_memory() -> int:
    """Bytes of this process that are no file's pages."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_reading_ten_thousand_batches_takes_no_more_memory(tokenizers, tmp_path):
    made = prepare(jsonl(tmp_path / "a.jsonl", DOCUMENTS * 99), tokenizers, tmp_path / "o", aside=False, progress=False)
    blocks = TokenBlocks(made.row(tmp_path / "o"), 16)
    sampler = ShuffledBlocks(len(blocks), 8, seed=0)
    before, read = None, 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for number in sampler:
            assert len(blocks[number]["input_ids"]) > 0
            read += 1
            if read == 8_000:
                before = anonymous_memory()
        if read >= 80_000:
            break
    assert before is not None and anonymous_memory() - before < 4 << 20
