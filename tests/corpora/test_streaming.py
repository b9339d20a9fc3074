"""Texts that are encoded while they are trained on: one order, exact resumption, nothing on the disk."""

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpora.recorded import SETTINGS, by_update, run
from torch.utils.data import DataLoader

from zoo import compare
from zoo.base.errors import ConfigError, DataError
from zoo.cli.main import cli
from zoo.data.corpora import planning
from zoo.data.corpora.planning import find_source
from zoo.data.tasks import find_task
from zoo.data.tasks.blocks import TokenBlocks
from zoo.data.tasks.streaming import StreamedRow
from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.training import train

DOCUMENTS = [f"Story {n} of {n * n} words, {'very ' * (n % 5)}short." for n in range(150)]
OPTIONS = {"tokenizer": "bpe:vocab_size=300", "task": "language-modeling:block_size=16,streaming=true,shuffle_buffer=9"}


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A data set with the files that one on the Hub has, of several shards."""
    monkeypatch.setattr(planning, "ASIDE_BYTES", 250)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    folder = tmp_path / "stories"
    folder.mkdir()
    for shard in range(3):
        lines = [json.dumps({"text": text}) + "\n" for text in DOCUMENTS[shard::3]]
        (folder / f"train-0000{shard}-of-00003.jsonl").write_text("".join(lines))
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)


def test_a_streamed_row_is_the_same_however_it_is_read(hub, tokenizers):
    source = find_source(hub)
    row = StreamedRow(source, tokenizers, 20, seed=0)
    whole = [row[start : start + 50].tolist() for start in range(0, 8000, 50)]
    ids = [token for part in whole for token in part]
    skipping = StreamedRow(source, tokenizers, 20, seed=0)
    for start, stop in ((30, 47), (46, 90), (4000, 4100), (4099, 4099), (7, 9), (7990, 8000)):
        assert skipping[start:stop].tolist() == ids[start:stop]
    assert pickle.loads(pickle.dumps(skipping))[100:200].tolist() == ids[100:200]
    others = [StreamedRow(source, tokenizers, *given)[0:500].tolist() for given in ((20, 1), (1, 0), (150, 0))]
    assert len({tuple(other) for other in [ids[:500], *others]}) == 4


def test_workers_of_a_loader_do_not_go_on_in_files_that_the_process_has_opened(tmp_path, tokenizers):
    for name in ("text", "heldout"):
        lines = [json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(3000)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    source = find_source(tmp_path / "text.jsonl", heldout=tmp_path / "heldout.jsonl")
    expected, blocks = (TokenBlocks(StreamedRow(source, tokenizers, 20, seed=0), 16) for _ in range(2))
    assert len(blocks[0]["labels"]) == 16
    workers = DataLoader(blocks, batch_size=None, sampler=range(1, 900), num_workers=2)
    for number, block in enumerate(workers, start=1):
        assert block["labels"].tolist() == expected[number]["labels"].tolist()


def test_tokens_of_a_word_include_the_ends_of_documents(hub, tokenizers):
    task = find_task(OPTIONS["task"])
    held = set(find_source(hub).heldout_texts(lambda error: None))
    texts = [text for text in DOCUMENTS if text not in held]
    ids = sum(len(tokenizers.source.encode(text, add_special_tokens=False)) + 1 for text in texts)
    words = sum(len(text.split()) for text in texts)
    assert task.tokens_per_word(task.load(hub).train, None, tokenizers) == pytest.approx(ids / words)


def test_an_epoch_has_each_document_once_and_none_that_is_held_out(hub, tokenizers):
    source = find_source(hub)
    row, end = StreamedRow(source, tokenizers, 20, seed=0), tokenizers.source.eos_token_id
    held = list(source.heldout_texts(lambda error: None))
    texts, start = [], 0
    while len(texts) < 2 * (len(DOCUMENTS) - len(held)):
        ids = row[start : start + 200].tolist()
        if end not in ids:
            break
        texts.append(tokenizers.source.decode(ids[: ids.index(end)]))
        start += ids.index(end) + 1
    half = len(texts) // 2
    assert sorted([*texts[:half], *held]) == sorted([*texts[half:], *held]) == sorted(DOCUMENTS)
    assert texts[:half] != texts[half:] and held


def test_the_parts_of_a_long_document_follow_each_other(tmp_path, monkeypatch, tokenizers):
    monkeypatch.setattr("zoo.data.corpora.sources.LONGEST_PART", 64)
    folder = tmp_path / "texts"
    folder.mkdir()
    long = {f"{name}.txt": "".join(f"{name} is line {n} of it.\n" for n in range(40)) for name in "ab"}
    short = {f"{n}.txt": f"Short story {n}.\n" for n in range(20)}
    for name, text in {**long, **short}.items():
        (folder / name).write_text(text)
    (tmp_path / "heldout.txt").write_text(long["b.txt"])
    source = find_source(folder, heldout=tmp_path / "heldout.txt")
    assert texts_of(source, tokenizers, 21) == sorted([long["a.txt"], *short.values()])
    divided = texts_of(find_source(folder / "a.txt", heldout=tmp_path / "heldout.txt", shard_bytes=500), tokenizers, 2)
    assert "".join(divided) == long["a.txt"] and len(divided) == 2


def texts_of(source, tokenizers, number):
    """The first documents of a stream, sorted."""
    row, end = StreamedRow(source, tokenizers, 5, seed=0), tokenizers.source.eos_token_id
    ids = row[0:5000].tolist()
    ends = [place for place, token in enumerate(ids) if token == end][:number]
    return sorted(tokenizers.source.decode(ids[a:b]) for a, b in zip([0, *(e + 1 for e in ends)], ends, strict=False))


def test_a_streamed_run_reads_the_same_in_each_update_and_goes_on_exactly(hub, tmp_path, monkeypatch, data_home):
    with monkeypatch.context() as killed_before_it_removes_checkpoints:
        killed_before_it_removes_checkpoints.setattr("zoo.training.training.remove_checkpoints", lambda folder: None)
        whole = by_update(run(tmp_path / "whole", hub, 1, 4, resume=True, **OPTIONS))
    assert all(len(blocks) == 8 for blocks in whole.values()) and len(whole) == 4
    assert by_update(run(tmp_path / "accumulated", hub, 1, 4, accumulation=2, **OPTIONS)) == whole
    for name in ("seed", "data_seed"):
        assert by_update(run(tmp_path / name, hub, 1, 4, **{name: 1}, **OPTIONS)) != whole
    shutil.rmtree(tmp_path / "whole-checkpoints/checkpoint-4")
    rest = by_update(run(tmp_path / "whole", hub, 1, 4, resume=True, force=True, **OPTIONS))
    assert rest == {number: whole[number] for number in (2, 3)}
    assert Counter(place.name.partition("-")[0] for place in (data_home / "prepared").iterdir()) == {"tokenizer": 2}


def test_a_masked_model_is_trained_on_a_stream(hub):
    task = "masked-language-modeling:block_size=16,streaming=true"
    options = {"tokenizer": "bpe:vocab_size=300", "settings": SETTINGS, "per_device_train_batch_size": 4}
    result = train("bert-style", task, data=hub, max_steps=2, progress=False, **options)
    assert result.report.train_examples == 8 and result.report.heldout_loss > 0


def test_the_command_streams(hub, tmp_path):
    given = "train gpt2-style@tiny --task language-modeling:block_size=16 --streaming --max-steps 2 --warmup-steps 1"
    more = ["--data", hub, "--tokenizer", "bpe:vocab_size=300", "-o", str(tmp_path / "m")]
    done = CliRunner().invoke(cli, [*given.split(), *more])
    assert done.exit_code == 0, done.output
    assert "Tokens: streamed, in blocks of 16; " in done.stderr
    assert "Steps          2\n" in done.stdout and "epochs" not in done.output


def test_streams_that_cannot_be_trained_on_are_refused(hub, tmp_path):
    task = find_task("language-modeling:streaming=true")
    for data in (None, "a=1+b=1"):
        with pytest.raises(DataError, match="cannot be streamed; give a file, a folder"):
            task.load(data)
    with pytest.raises(DataError, match="nothing can be set aside"):
        task.set_aside(task.load(hub).train)
    with pytest.raises(ConfigError, match="give max_steps"):
        train("gpt2-style@tiny", OPTIONS["task"], data=hub, tokenizer=OPTIONS["tokenizer"], progress=False)
    with pytest.raises(ConfigError, match="leave streaming out"):
        compare(["gpt2-style@tiny"], data=hub, output_dir=tmp_path / "out", progress=False, max_steps=1, **OPTIONS)
