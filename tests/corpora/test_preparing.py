"""Token shards: what is in them, who else reads them, and what interruptions and bad input leave."""

import gzip
import itertools
import json
import os
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from preloaded import run_fork, start_python

from zoo.base.errors import ConfigError, DataError, OutputExistsError
from zoo.cli.main import cli
from zoo.data.corpora import shards
from zoo.data.corpora.planning import find_source
from zoo.data.corpora.preparing import Preparation, prepare
from zoo.data.corpora.shard_worker import count_words, document_hash
from zoo.data.corpora.shard_worker import run as run_shard
from zoo.data.corpora.shards import MANIFEST, is_prepared, read_manifest
from zoo.data.corpora.sources import Piece, lines_of, parts_of, plan
from zoo.data.tokenizers import Tokenizers, load_tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import backend_json

from .conftest import DOCUMENTS, jsonl


def expected_ids(tokenizers: Tokenizers, documents: list[str]) -> list[int]:
    """Ids of documents, each followed by the end of a text, by the tokenizer's slow path, one by one."""
    end = tokenizers.source.eos_token_id
    return [i for text in documents for i in [*tokenizers.source.encode(text, add_special_tokens=False), end]]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "txt", "folder"])
def test_every_source_gives_the_ids_of_its_documents(tokenizers, tmp_path, kind):
    source, documents = tmp_path / f"source.{kind}", DOCUMENTS
    raw = jsonl(tmp_path / "raw", DOCUMENTS).read_bytes()
    if kind == "jsonl":
        source.write_bytes(raw)
    elif kind == "jsonl.gz":
        source.write_bytes(gzip.compress(raw))
    elif kind == "jsonl.zst":
        with pyarrow.CompressedOutputStream(str(source), "zstd") as stream:
            stream.write(raw)
    elif kind == "parquet":
        table = pyarrow.table({"id": range(60), "text": DOCUMENTS})
        pyarrow.parquet.write_table(table, source, row_group_size=17)
    elif kind == "txt":
        source.write_text(DOCUMENTS[5])
        documents = [DOCUMENTS[5]]
    else:
        jsonl(source / "b.jsonl", DOCUMENTS[:20])
        (source / "a.txt").parent.mkdir(exist_ok=True)
        (source / "a.txt").write_text(DOCUMENTS[30])
        (source / "ignored.bin").write_bytes(b"\xff")
        documents = [DOCUMENTS[30], *DOCUMENTS[:20]]
    made = prepare(source, tokenizers, tmp_path / "out", shard_bytes=1500, aside=False, progress=False)
    row = made.row(tmp_path / "out")
    assert row[0 : len(row)].tolist() == expected_ids(tokenizers, documents)
    assert made.documents == len(documents) and made.bytes == sum(len(text.encode()) for text in documents)
    assert load_tokenizers(tmp_path / "out").source.get_vocab() == tokenizers.source.get_vocab()
    if kind == "jsonl":
        assert len(made.shards) > 2
        spans = [(0, 0), (3, 700), (699, 701), (len(row) - 5, len(row) + 9)]
        assert all(row[a:b].tolist() == expected_ids(tokenizers, documents)[a:b] for a, b in spans)


def test_a_shard_is_an_indexed_dataset_of_megatron_and_a_bin_of_nanogpt(tokenizers, tmp_path):
    prepare(jsonl(tmp_path / "a.jsonl", DOCUMENTS), tokenizers, tmp_path / "out", aside=False, progress=False)
    raw = (tmp_path / "out/shards/shard-00000.idx").read_bytes()
    assert raw[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, borders = struct.unpack("<QBQQ", raw[9:34])
    assert (version, code, sequences, borders) == (1, 8, 60, 61)  # 8 is uint16
    sizes = np.frombuffer(raw, np.int32, 60, 34)
    starts = np.frombuffer(raw, np.int64, 60, 34 + 240)
    documents = np.frombuffer(raw, np.int64, 61, 34 + 240 + 480)
    ids = np.memmap(tmp_path / "out/shards/shard-00000.bin", dtype=np.uint16, mode="r")  # as nanoGPT's train.py does
    assert documents.tolist() == list(range(61)) and len(raw) == 34 + 240 + 480 + 488
    for text, size, start in zip(DOCUMENTS, sizes, starts, strict=True):
        assert ids[start // 2 : start // 2 + size].tolist() == expected_ids(tokenizers, [text])


def test_a_text_longer_than_a_shard_is_one_document(tokenizers, tmp_path):
    lines = [f"Line {number} of a long text." for number in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    made = prepare(tmp_path / "a.txt", tokenizers, tmp_path / "out", shard_bytes=1000, aside=False, progress=False)
    row = made.row(tmp_path / "out")
    ids = row[0 : len(row)]
    assert made.documents == 1 and len(made.shards) > 5
    assert (ids == tokenizers.source.eos_token_id).sum() == 1 and ids[-1] == tokenizers.source.eos_token_id
    assert tokenizers.source.decode(ids[:-1]) == "\n".join(lines)


@pytest.mark.parametrize("size", [1, 2, 7, 30, 1000])
def test_every_line_is_in_one_piece(tmp_path, size):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\n\ntwo two\n\nthree" + b"\nx" * 9 + b"\n" * (size % 2))
    pieces = [piece for shard in plan([file], size) for piece in shard]
    assert b"".join(raw for piece in pieces for _, _, raw in lines_of(piece)) == file.read_bytes()


def test_the_bytes_do_not_depend_on_processes_or_interruptions(tokenizers, tmp_path):
    source = jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    for name, jobs in (("one", 1), ("three", 3)):
        prepare(source, tokenizers, tmp_path / name, shard_bytes=1000, jobs=jobs, aside=False, progress=False)
    whole = content(tmp_path / "one")
    assert content(tmp_path / "three") == whole
    for removed in (MANIFEST, "shards/shard-00001.json"):
        (tmp_path / "three" / removed).unlink()
    (tmp_path / "three/shards/shard-00001.bin").write_bytes(b"half")
    (tmp_path / "three/shards/shard-00001.bin.1.partial").write_bytes(b"more than half of it")
    prepare(source, tokenizers, tmp_path / "three", shard_bytes=1000, aside=False, progress=False)
    assert content(tmp_path / "three") == whole


@pytest.mark.slow
def test_a_killed_preparation_goes_on(tokenizers, tmp_path):
    source, ready = jsonl(tmp_path / "a.jsonl", DOCUMENTS * 3), tmp_path / "tokenizer"
    tokenizers.save(ready)
    command = [sys.executable, "-m", "zoo", "data", "prepare", str(source), "--tokenizer", str(ready), "--jobs", "1"]
    code = f"""
import sys; import zoo.data.corpora.planning as p; p.SHARD_BYTES = 1500
sys.argv = {["zoo", *command[3:], "-o", str(tmp_path / "killed"), "--quiet"]!r}
from zoo.cli.main import main; main()
"""
    process = start_python(["-c", code], [0, 1, 2], env=os.environ)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("shards/*-00001.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not is_prepared(tmp_path / "killed")
    tokenizers = load_tokenizers(ready)
    for name in ("killed", "whole"):
        prepare(source, tokenizers, tmp_path / name, shard_bytes=1500, progress=False)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_process_that_is_killed_is_an_error_after_which_it_goes_on(tokenizers, tmp_path):
    source, out = jsonl(tmp_path / "a.jsonl", DOCUMENTS), tmp_path / "out"
    with ThreadPoolExecutor(1) as pool:
        preparing = pool.submit(prepare, source, tokenizers, out, shard_bytes=1000, jobs=2, progress=False)
        while not preparing.done():
            for process in psutil.Process().children():
                with suppress(psutil.Error):
                    if "zoo.data.corpora.shard_worker" in process.cmdline():
                        process.kill()
        with pytest.raises(DataError, match=r"shard-0000\d of .*out failed with exit code -9; try again"):
            preparing.result()
    assert prepare(source, tokenizers, out, shard_bytes=1000, progress=False).shards


BAD = {
    "broken JSON": (b'{"text": "no end', "not valid JSON at character"),
    "not UTF-8": (b'{"text": "\xff"}', "not valid UTF-8 at byte"),
    "half of a pair": (rb'{"text": "\ud800"}', "surrogates not allowed"),
    "no text": (b'{"words": "x"}', "no text or content or sentence or document"),
    "a number": (b'{"text": 5}', "text is int and no text"),
    "a list": (b"[1]", "no text or"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_named_and_stops_or_is_skipped(tokenizers, tmp_path, case, capfd):
    raw, message = BAD[case]
    source = jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    lines = source.read_bytes().splitlines(keepends=True)
    source.write_bytes(b"".join([*lines[:40], raw + b"\n", *lines[40:]]))
    out = tmp_path / "out"
    given = {"shard_bytes": 1000, "aside": False, "jobs": 1, "progress": False}
    with pytest.raises(DataError, match=f"a.jsonl, line 41: .*{message}"):
        prepare(source, tokenizers, out, **given)
    assert not is_prepared(out)
    with pytest.raises(OutputExistsError, match="holds another preparation"):
        prepare(source, tokenizers, out, on_error="skip", **given)
    made = prepare(source, tokenizers, tmp_path / "b", on_error="skip", **given)
    assert made.documents == 60 and sum(shard.skipped for shard in made.shards) == 1
    assert "line 41" in capfd.readouterr().err


def test_held_out_documents_are_left_out_of_training(tokenizers, tmp_path):
    jsonl(tmp_path / "source/train.jsonl", [*DOCUMENTS, f"{DOCUMENTS[3]}\n"])
    jsonl(tmp_path / "source/validation.jsonl", [DOCUMENTS[3], "Held out alone."])
    jsonl(tmp_path / "source/test.jsonl", ["Of the test."])
    made = prepare(tmp_path / "source", tokenizers, tmp_path / "out", aside=False, progress=False)
    row = made.row(tmp_path / "out")
    assert row[0 : len(row)].tolist() == expected_ids(tokenizers, DOCUMENTS[:3] + DOCUMENTS[4:])
    assert sum(shard.heldout for shard in made.shards) == 2
    lines = (tmp_path / "out/heldout.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [DOCUMENTS[3], "Held out alone."]


def in_parts(text: str, size: int) -> list[str]:
    """A text in parts: the lines that begin in each block of this number of bytes."""
    lines = text.splitlines(keepends=True)
    places = itertools.accumulate(map(len, lines), initial=0)
    pairs = itertools.groupby(zip(places, lines, strict=False), key=lambda pair: pair[0] // size)
    return ["".join(line for _, line in part) for _, part in pairs]


def test_parts_of_long_documents_are_compared_with_held_out_ones(tokenizers, tmp_path, monkeypatch):
    """Whole copies are left out; of equal beginnings the rest is kept; and a text that is elsewhere in a file stays."""
    monkeypatch.setattr("zoo.data.corpora.sources.LONGEST_PART", 100)
    held, own, last = ("".join(f"{word} {number}\n" for number in range(60)) for word in ("held", "own", "last"))
    texts = [own, held, f"{own}{held}", f"{held[:330]}\n{own}", f"{own[:330]}\n{held[331:]}", last]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    pieces = [asdict(piece) for shard in plan([tmp_path / f"{n}.txt" for n in range(6)], 300) for piece in shard]
    out = set(in_parts(held, 100))
    (tmp_path / "hashes").write_bytes(b"".join(map(document_hash, out)))
    (tmp_path / "tokenizer.json").write_text(backend_json(tokenizers.source))
    end = tokenizers.source.eos_token_id
    job = {"place": str(tmp_path / "out"), "pieces": pieces, "stamps": {}, "heldout": str(tmp_path / "hashes")}
    job |= {"tokenizer": str(tmp_path / "tokenizer.json"), "code": shards.UINT16, "end": end, "column": None}
    made = run_shard({**job, "on_error": "stop"})
    ids = np.fromfile(tmp_path / "out.bin", np.uint16)
    found = [tokenizers.source.decode(one[:-1]) for one in np.split(ids, np.flatnonzero(ids == end) + 1)[:-1]]
    kept = [[part for part in in_parts(text, 100) if part not in out] for text in texts]
    assert found == ["".join(parts) for parts in kept if parts]
    assert found[0] == own and found[1] == texts[2] and len(found) == 5 and found[2] != texts[3]
    assert made.documents == 5 and made.heldout == sum(len(in_parts(text, 100)) for text in texts) - sum(map(len, kept))


def test_near_duplicates_of_held_out_documents_are_left_out_if_asked(tokenizers, tmp_path):
    pytest.importorskip("datasketch")
    held = " ".join(f"word{n}" for n in range(200))
    near = held.replace("word7 ", "seven ").replace("word90 ", "ninety ")
    far = " ".join(f"word{n}" for n in range(0, 400, 2))
    jsonl(tmp_path / "source/train.jsonl", [*DOCUMENTS, near, held, far])
    jsonl(tmp_path / "source/validation.jsonl", [held])
    made = {
        share: prepare(tmp_path / "source", tokenizers, tmp_path / f"{share}", near_duplicates=share, progress=False)
        for share in (None, 0.8, 0.98)
    }
    counts = {key: (one.documents, one.shards[0].near, one.duplicates) for key, one in made.items()}
    assert counts == {None: (62, 0, 1), 0.8: (61, 1, 1), 0.98: (62, 0, 1)}
    for similarity in (0, 1.5):
        with pytest.raises(ConfigError, match="near_duplicates=.* is not valid; it is between 0.1 and 0.98"):
            prepare(tmp_path / "source", tokenizers, tmp_path / "bad", near_duplicates=similarity, progress=False)


def test_held_out_texts_may_hold_any_end_of_a_line(tokenizers, tmp_path, monkeypatch):
    """JSON leaves some of them as they are, U+2028 for instance."""
    found: list[str] = []
    monkeypatch.setattr("zoo.data.corpora.shard_worker.NearDuplicates", lambda texts, _: found.extend(texts) or ())
    source, held = jsonl(tmp_path / "a.jsonl", DOCUMENTS), "Held\u2028out\x85 alone."
    folder = tmp_path / "out"
    prepare(source, tokenizers, folder, heldout=jsonl(tmp_path / "b.jsonl", [held]), progress=False)
    job = {"place": str(tmp_path / "b"), "pieces": [], "stamps": {}, "heldout": str(folder / "shards/heldout.hashes")}
    job |= {"tokenizer": str(folder / "shards/tokenizer.json"), "code": shards.UINT16, "end": 2, "column": None}
    run_shard({**job, "on_error": "stop", "near_duplicates": 0.8, "heldout_texts": str(folder / "heldout.jsonl")})
    assert found == [held]


@pytest.mark.parametrize("name", ["a.txt.gz", "b.txt.gz", "c.txt.zst", "d.parquet"])
def test_a_damaged_file_is_named(tokenizers, tmp_path, name):
    content = "".join(f"Line {number} of {number * number}.\n" for number in range(9000)).encode()
    if name == "a.txt.gz":
        content = gzip.compress(content)[:9000]
    elif name.endswith("zst"):
        content = pyarrow.compress(content, "zstd", asbytes=True)[:9000]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} cannot be read: "):
        prepare(tmp_path / name, tokenizers, tmp_path / "out", aside=False, progress=False)


def test_bad_sources_and_options_are_refused(tokenizers, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(DataError, match="nowhere does not exist"):
        prepare(tmp_path / "nowhere", tokenizers, out, aside=False, progress=False)
    (tmp_path / "picture.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no source of text, and holds none; valid: \.txt"):
        prepare(tmp_path / "picture.png", tokenizers, out, aside=False, progress=False)
    with pytest.raises(ConfigError, match="on_error='ignore' is not valid"):
        prepare(tmp_path / "picture.png", tokenizers, out, on_error="ignore", aside=False, progress=False)
    source = jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    with pytest.raises(OutputExistsError, match="holds no preparation"):
        prepare(source, tokenizers, tmp_path / "mine", aside=False, progress=False)
    prepare(source, tokenizers, out, aside=False, progress=False)
    manifest = json.loads((out / MANIFEST).read_text())
    for changed, message in (({"shards": 5}, "is damaged"), ({"shards": []}, "no tokens")):
        (out / MANIFEST).write_text(json.dumps({**manifest, **changed}))
        with pytest.raises(DataError, match=message):
            read_manifest(out)


def test_a_source_that_changed_since_is_refused(tokenizers, tmp_path):
    source = jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    prepare(source, tokenizers, tmp_path / "out", aside=False, progress=False)
    jsonl(source, DOCUMENTS[:30])
    with pytest.raises(OutputExistsError, match="other sources"):
        prepare(source, tokenizers, tmp_path / "out", aside=False, progress=False)


def test_a_source_that_changes_while_it_is_read_is_refused(tokenizers, tmp_path, monkeypatch):
    source = jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    found = find_source(source, aside=False)
    assert found.stamps  # read before the change
    jsonl(source, DOCUMENTS[:30])
    with pytest.raises(DataError, match=r"a.jsonl changed while it was prepared; prepare again when"):
        Preparation(found, tokenizers).write(tmp_path / "out", progress=False)
    assert not is_prepared(tmp_path / "out")


LIMITED = """
import resource, sys
from zoo.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
sys.argv = ["zoo", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of a file's size")
def test_a_disk_that_fills_is_named_in_one_line_and_the_preparation_goes_on_later(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", [f"{number} {text}" for number in range(30) for text in DOCUMENTS])
    train_tokenizers(["a", "b"], kind="character").save(tmp_path / "tokenizer")
    words = ["data", "prepare", str(source), "--tokenizer", str(tmp_path / "tokenizer"), "-o", str(tmp_path / "out")]
    failed = run_fork(["-c", LIMITED, *words], env=os.environ)
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("zoo: error: ") and "shards cannot be written: " in failed.stderr
    assert not is_prepared(tmp_path / "out")
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    made = read_manifest(tmp_path / "out")
    assert len(made.row(tmp_path / "out")) == made.tokens > 1 << 13


def test_a_line_without_an_end_is_refused(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.data.corpora.sources.LONGEST_LINE", 1000)
    (tmp_path / "a.txt").write_text("short\n" + "x" * 1001)
    with pytest.raises(DataError, match=r"a.txt, line 2: longer than 1,000 bytes"):
        list(parts_of(Piece(str(tmp_path / "a.txt")), None, lambda error: None))


@given(st.text() | st.text(st.sampled_from("ab \n\x1f\x85\xa0\u2003\u3000\u3001\U0001f600")))
@example("a".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode)))))
def test_words_are_what_white_space_separates(text):
    assert count_words(text) == len(text.split())
