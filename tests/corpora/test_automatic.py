"""Texts that are large, or that nothing else reads, are prepared before they are trained on, once."""

import gzip
import json
from pathlib import Path

import pytest
from comparison.in_process import run_here
from corpora.recorded import SETTINGS

from zoo import compare
from zoo.base.errors import ConfigError, DataError
from zoo.comparison.run.launchers import ray_environment
from zoo.data.corpora import planning, preparing
from zoo.data.corpora.planning import find_source
from zoo.data.tasks import find_task, prepared
from zoo.data.tasks.prepared import SourceTexts, needs_shards
from zoo.data.tokenizers import train_tokenizers
from zoo.training import train
from zoo.training.evaluate import examples_of_run
from zoo.training.record import saved_run

DOCUMENTS = [f"Story {n} of {n * n} words, {'very ' * (n % 5)}short.\nIt ends." for n in range(120)]


def lines(documents: list[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in documents)


def written(folder: Path, kind: str) -> str:
    """Write the documents as a source of a kind; returns what `--data` is then."""
    folder.mkdir()
    if kind == "jsonl.gz":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(DOCUMENTS).encode()))
        return str(folder / "a.jsonl.gz")
    if kind == "large jsonl":
        (folder / "a.jsonl").write_text(lines(DOCUMENTS))
        return str(folder / "a.jsonl")
    if kind == "large txt":
        (folder / "a.txt").write_text("\n".join(DOCUMENTS))
        return str(folder / "a.txt")
    if kind == "folder of txt":
        for number, text in enumerate(DOCUMENTS):
            (folder / f"{number}.txt").write_text(text)
        return str(folder)
    if kind in ("splits in folders", "splits in shards"):
        for split, part in (("train", DOCUMENTS[5:]), ("validation", DOCUMENTS[:5])):
            file = folder / (f"data/{split}-00000-of-00001.jsonl" if kind == "splits in shards" else f"{split}/a.jsonl")
            file.parent.mkdir(exist_ok=True)
            file.write_text(lines(part))
        return str(folder)
    (folder / "train.jsonl").write_text(lines(DOCUMENTS[5:]))  # a data set as the Hub has it
    if kind == "hub with validation":
        (folder / "validation.jsonl").write_text(lines(DOCUMENTS[:5]))
    return f"hf:{folder}"


@pytest.mark.parametrize("large", [0, 1 << 20], ids=["shards", "memory"])
def test_files_of_any_size_are_read_by_the_same_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(prepared, "SHARD_BYTES", large)
    record = json.dumps({"sentence": "A part.", "content": "All of it."}) + "\n"
    (tmp_path / "a.jsonl").write_text(record * 20)
    splits = find_task("language-modeling").load(tmp_path / "a.jsonl")
    assert isinstance(splits.train, SourceTexts) == (large == 0)
    assert set(splits.heldout["text"]) == {"All of it."}


OF_FILES = ["jsonl.gz", "large jsonl", "large txt", "folder of txt", "splits in folders", "splits in shards"]
KINDS = [*OF_FILES, "hub", "hub with validation"]


@pytest.mark.parametrize("kind", [*KINDS, "mixture"])
def test_sources_without_a_held_out_part_are_known_as_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(prepared, "SHARD_BYTES", 0)
    data = written(tmp_path / "source", "folder of txt" if kind == "mixture" else kind)
    named = f"{data}=0.5+{written(tmp_path / 'more', 'splits in folders')}=0.5" if kind == "mixture" else data
    splits = find_task("language-modeling").load(named)
    assert splits.is_divided == (kind not in ("splits in folders", "splits in shards", "hub with validation"))


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prepared, "SHARD_BYTES", 1000)
    monkeypatch.setattr(planning, "ASIDE_BYTES", 250)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_is_prepared_before_the_first_step_and_never_again(kind, tmp_path, monkeypatch):
    data = written(tmp_path / "source", kind)
    options = {
        **{"data": data, "output_dir": tmp_path / "out", "settings": SETTINGS, "tokenizer": "bpe:vocab_size=300"},
        **{"max_steps": 1, "progress": False},
    }
    first = train("gpt2-style", "language-modeling:block_size=16", **options)
    monkeypatch.setattr(preparing, "encode_all", None)
    monkeypatch.setattr("zoo.data.tasks.text_task.train_tokenizers", None)
    second = train("gpt2-style", "language-modeling:block_size=16", **options, force=True)
    assert second.run == first.run and second.report.heldout_loss == first.report.heldout_loss
    run = saved_run(tmp_path / "out")
    assert run is not None and run.data.source is not None and run.data.source.data == data
    examples, _ = examples_of_run(run, run.recipe.data_task(), "out")
    assert len(examples) == first.run.data.heldout.examples
    check_documents(kind, data, first.tokenizers)


def check_documents(kind, data, tokenizers):
    """Every document is trained on or held out."""
    task = find_task("language-modeling")
    splits = task.prepare(task.load(data), tokenizers)
    row, end = splits.train.row(tokenizers), tokenizers.source.eos_token_id
    ids = row[0 : len(row)].tolist()
    texts = tokenizers.source.decode(ids).split(tokenizers.source.eos_token)
    held = splits.heldout["text"][:]
    assert ids[-1] == end and texts.pop() == "" and held
    if kind == "large txt":
        assert "".join(texts + held) == "\n".join(DOCUMENTS) and 0 < len("".join(held)) <= 250
    else:
        found = DOCUMENTS[5:] if kind == "hub" else DOCUMENTS
        assert sorted([*texts, *held]) == sorted(found) and sum(map(len, held)) <= 350
    assert splits.duplicates == 0


def test_a_copy_of_a_held_out_document_is_left_out_and_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines([*DOCUMENTS, DOCUMENTS[0], DOCUMENTS[0]]))
    task, tokenizers = find_task("language-modeling"), train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)
    splits = task.prepare(found := task.load(tmp_path / "a.jsonl"), tokenizers)
    assert splits.heldout["text"][0] == DOCUMENTS[0] and splits.duplicates == 2
    assert not set(found.train.source.sample()) & set(splits.heldout["text"])


def test_held_out_texts_that_changed_since_are_left_out_too(tmp_path):
    train_file, heldout = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    train_file.write_text(lines(DOCUMENTS))
    task, tokenizers = find_task("language-modeling"), train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)
    for number in (2, 5):
        heldout.write_text(lines(DOCUMENTS[:number]))
        splits = task.prepare(task.load(train_file, heldout=heldout), tokenizers)
        assert splits.duplicates == number and len(splits.train) == len(DOCUMENTS) - number


def test_another_column_has_another_tokenizer(tmp_path):
    rows = [{"text": text, "upper": text.upper()} for text in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = find_task("language-modeling")
    sources = [task.load(tmp_path / "a.jsonl", columns=columns) for columns in (None, ["upper"])]
    lower, upper = (task.train_tokenizers(one.train, kind="bpe", vocab_size=300).source for one in sources)
    assert lower.get_vocab() != upper.get_vocab()


def test_small_sources_that_are_read_into_memory_stay_so(tmp_path, monkeypatch):
    monkeypatch.undo()
    for name in ("train", "valid"):
        (tmp_path / f"{name}.txt").write_text("A text.")
    (tmp_path / "a.tsv").write_text("text\nA text.\n")
    assert not any(needs_shards(str(place)) for place in (tmp_path, tmp_path / "train.txt", tmp_path / "a.tsv"))
    assert not isinstance(find_task("language-modeling").load(tmp_path).train, SourceTexts)


def test_large_sources_that_leave_nothing_to_hold_out_are_refused_before_they_are_read(tmp_path):
    task = find_task("language-modeling")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"A text."))
    with pytest.raises(DataError, match=r"one compressed text, .*a.txt.gz; name texts to evaluate on \(--heldout\)"):
        task.load(tmp_path / "a.txt.gz")
    (tmp_path / "b.txt").write_text("one long line " * 100)
    with pytest.raises(DataError, match=r"b.txt has nothing to hold out; name texts to evaluate on \(--heldout\)"):
        task.load(tmp_path / "b.txt")
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(lines(DOCUMENTS[:1] * 3).encode()))
    with pytest.raises(DataError, match=r"no text to train on; all of it is held out: name texts"):
        task.prepare(task.load(tmp_path / "d.jsonl.gz"), train_tokenizers(DOCUMENTS, kind="character"))
    (tmp_path / "c.txt").write_text("Held out.")
    assert task.load(tmp_path / "b.txt", heldout=tmp_path / "c.txt").heldout["text"][:] == ["Held out."]
    with pytest.raises(ConfigError, match="give the name of one column"):
        task.load(tmp_path / "b.txt", columns=[1])


def test_the_digest_of_a_source_is_the_same_wherever_it_is(tmp_path):
    for name in ("here", "there"):
        written(tmp_path / name, "folder of txt")
    here, there = (find_source(tmp_path / name) for name in ("here", "there"))
    assert here.sha256 == there.sha256 and [Path(piece.file).name for piece in here.heldout] == [
        Path(piece.file).name for piece in there.heldout
    ]


@pytest.mark.slow
def test_a_comparison_encodes_its_texts_once_for_all_runs_and_trials(tmp_path, data_home, monkeypatch):
    run_here(monkeypatch)
    data = written(tmp_path / "source", "jsonl.gz")
    options = {"settings": {**SETTINGS, "num_key_value_heads": None}, "tokenizer": "bpe:vocab_size=300"}
    options |= {"sweep": "learning_rate=0.01,0.001", "budget": "steps=2", "per_device_train_batch_size": 2}
    names, task, out = ["gpt2-style", "llama-style"], "language-modeling:block_size=16", tmp_path / "out"
    made = compare(names, task, data=data, output_dir=out, progress=False, **options)
    assert [run.error for run in made.runs] == [None, None]
    folders = [place for place in (data_home / "prepared").iterdir() if place.is_dir()]
    assert sorted(place.name.startswith("tokenizer-") for place in folders) == [False, True]
    jobs = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("job.json")]
    assert {job["data"] for job in jobs} == {data} and sum(job["trial"] for job in jobs) == 6


def test_workers_of_ray_share_the_folder_of_prepared_data(data_home, monkeypatch):
    assert ray_environment()["env_vars"]["ZOO_DATA"] == str(data_home)
    monkeypatch.delenv("ZOO_DATA")
    assert "ZOO_DATA" not in ray_environment()["env_vars"]
