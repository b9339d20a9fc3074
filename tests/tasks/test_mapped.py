"""Rows of large files are mapped into memory, and everything is as if they were in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from safetensors.torch import load_file

import zoo
from zoo.base.errors import DataError
from zoo.data.corpora import getting
from zoo.data.corpora.keeping import kept_prepared
from zoo.data.tasks import find_task, mapped
from zoo.data.tasks.mapped import TooLongError, is_mapped
from zoo.data.tasks.reading import read_table
from zoo.data.tasks.sources import DataSource
from zoo.training.inputs import encode
from zoo.training.record import digest_of_examples, digest_of_tokenizers

ROWS = [(f"word {n} of {n * n}", f"mot {n} de {n * n}", ("good", "bad", "new")[n % 3]) for n in range(300)]
SETTINGS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "zoo-data"))
    monkeypatch.setattr(mapped, "ROWS_AT_ONCE", 64)


def write(file: Path, task: str) -> Path:
    """Write pairs, or texts with labels; one held-out text is also in the training part."""
    rows = [(row[0], row[1 if task == "translation" else 2]) for row in (*ROWS, *ROWS[:150])]
    names = ("en", "fr") if task == "translation" else ("text", "label")
    if file.suffix == ".parquet":
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        features = Features({names[0]: Value("string"), names[1]: Value("string")})
        if task != "translation":  # labels as numbers, as most data sets keep them
            features["label"] = ClassLabel(names=["new", "good", "bad"])
        Dataset.from_dict(columns, features=features).to_parquet(file, batch_size=100)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    else:
        mark = "\t" if file.suffix == ".tsv" else ","
        file.write_text("".join(mark.join(row) + "\n" for row in (names, *rows)))
    return file


def found(task: Any, file: Path) -> tuple[Any, ...]:
    """Everything that a run makes of a file."""
    splits = task.load_from(DataSource(str(file)))
    fitted = task.fitted(splits)
    tokenizers = fitted.train_tokenizers(splits.train, kind="bpe", vocab_size=320)
    aside = fitted.set_aside(splits.train, seed=1)
    ids = encode(fitted, splits, tokenizers, seed=0).train
    examples = [digest_of_examples(part) for part in (*splits, *aside)]
    counts = fitted.label_counts(splits.train)
    return is_mapped(splits.train), examples, splits.duplicates, counts, digest_of_tokenizers(tokenizers), ids[:]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("task", ["translation", "translation:max_length=11", "text-classification"])
def test_mapped_rows_are_those_in_memory(suffix, task, tmp_path, monkeypatch):
    file = write(tmp_path / f"a{suffix}", task.partition(":")[0])
    in_memory = found(find_task(task), file)
    assert kept_prepared() == []
    monkeypatch.setattr(mapped, "SHARD_BYTES", 1000)
    first, second = (found(find_task(task), file) for _ in range(2))
    assert first[0] and not in_memory[0] and in_memory[2] > 0
    assert first[1:] == second[1:] == in_memory[1:]
    assert sorted(kept.source for kept in kept_prepared()) == ["ids of rows", "rows of a file"]


@pytest.mark.parametrize("task", ["translation", "text-classification"])
def test_a_run_on_a_large_file_has_the_same_weights(task, tmp_path, monkeypatch):
    file = write(tmp_path / "a.tsv", task)
    model = {"translation": "pre-norm", "text-classification": "bert-style"}[task]
    for number, large in enumerate((mapped.SHARD_BYTES, 1000)):
        monkeypatch.setattr(mapped, "SHARD_BYTES", large)
        given = {"data": file, "settings": SETTINGS, "max_steps": 3, "per_device_train_batch_size": 8}
        zoo.train(model, task, output_dir=tmp_path / str(number), scored=False, progress=False, **given)
    weights = [load_file(tmp_path / str(number) / "model.safetensors") for number in range(2)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_other_columns_and_other_ends_are_no_rows_of_before(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "SHARD_BYTES", 1000)
    file = tmp_path / "a.conll"
    file.write_text("".join(f"word{n} NN {'B-PER' if n % 2 else 'O'}\n\n" for n in range(100)))
    task = find_task("token-classification")
    counted = [{*task.label_counts(task.load(file, columns=columns).train)} for columns in (None, [0, 1], [0, 2])]
    assert counted == [{"B-PER", "O"}, {"NN"}, {"B-PER", "O"}]
    pairs, task = write(tmp_path / "a.tsv", "translation"), find_task("translation")
    splits = task.load(pairs)
    tokenizers = task.train_tokenizers(splits.train, kind="bpe", vocab_size=320)
    ends = [tokenizers.target.eos_token_id]
    assert {row[-1] for row in encode(task, splits, tokenizers, seed=0).train["labels"]} == {*ends}
    for one in {id(one): one for one in (tokenizers.source, tokenizers.target)}.values():
        one.eos_token = one.pad_token
    found = encode(task, splits, tokenizers, seed=0).train["labels"]
    assert {row[-1] for row in found} == {tokenizers.target.eos_token_id} != {*ends}
    kept = len(kept_prepared())
    monkeypatch.setattr(getting, "zoo_version", lambda: "another")
    encode(task, task.load(pairs), tokenizers, seed=0)
    assert len(kept_prepared()) == kept + 2, "another version may read and encode otherwise"


def test_bad_rows_of_a_large_file_are_named_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "SHARD_BYTES", 1000)
    file = write(tmp_path / "a.tsv", "translation")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:200], "alone\n", *lines[200:]]))
    with pytest.raises(DataError, match=r"a.tsv, line 201: 1 field where 2 are expected"):
        find_task("translation").load(file)
    assert [kept for kept in kept_prepared() if kept.source != "unfinished"] == []
    file.write_text("".join(lines))
    splits = find_task("translation").load(file)
    assert len(splits.train) + len(splits.heldout) == 450
    file.write_text("".join(lines[:-1]))  # another file of the same name
    assert sum(map(len, find_task("translation").load(file))) == 449
    task = find_task("translation:max_length=1")
    with pytest.raises(TooLongError, match="more than max_length=1 tokens"):
        encode(task, splits, task.train_tokenizers(splits.train), seed=0)


def test_rows_of_nested_columns_are_read_a_part_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "SHARD_BYTES", 1000)
    pairs = [{"id": n, "translation": {"en": row[0], "fr": row[1]}} for n, row in enumerate(ROWS)]
    Dataset.from_list(pairs).to_parquet(tmp_path / "a.parquet", batch_size=100)
    table = read_table(tmp_path / "a.parquet")
    assert is_mapped(table.dataset()) and table.place(299) == f"{tmp_path / 'a.parquet'}, row 300"
    assert [*zip(*table.columns.values(), strict=True)] == [row[:2] for row in ROWS]


def test_a_damaged_part_of_a_large_parquet_file_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "SHARD_BYTES", 1000)
    file = write(tmp_path / "a.parquet", "translation")
    content = bytearray(file.read_bytes())
    place = content.rindex(b"word", 0, len(content) // 2)
    content[place - 40 : place + 200] = bytes(240)
    file.write_bytes(content)
    with pytest.raises(DataError, match="a.parquet is not a valid Parquet file"):
        read_table(file)
    assert [kept for kept in kept_prepared() if kept.source != "unfinished"] == []
