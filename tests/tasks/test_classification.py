"""Text and token classification: labels, their numbers, and the tokens that they belong to."""

import itertools
import json

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_dataset

import zoo
from zoo.base.errors import ConfigError
from zoo.data.tasks import DataError, Predictions, Splits, find_task
from zoo.data.tasks.labels import LabelsTask
from zoo.fast.chunked_loss import IGNORED

REVIEWS = [("good", "pos"), ("bad", "neg"), ("very good", "pos"), ("not bad", "pos"), ("so bad", "neg")]
CONLL = "-DOCSTART- -X- O\n\nAna NNP B-PER\nlives VBZ O\nin IN O\nNova NNP B-LOC\nIorque NNP I-LOC\n\nNo DT O\n"


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in [("text", "label"), *rows])


def test_labels_are_numbered_in_order_for_any_names_of_columns(write):
    rows = [json.dumps({"id": i, "label": label, "text": text}) for i, (text, label) in enumerate(REVIEWS)]
    task = find_task("text-classification")
    splits = task.load(write("reviews.jsonl", "\n".join(rows)))
    task = task.fitted(splits)
    assert task.labels == ("neg", "pos")
    tokenizers = task.train_tokenizers(splits.train, kind="character")
    assert task.model_settings(tokenizers)["id2label"] == {0: "neg", 1: "pos"}
    encoded = task.encode(splits.train, tokenizers)
    assert encoded["labels"][:] == [task.labels.index(label) for label in splits.train["label"]]
    batch = task.collator(tokenizers)([dict(encoded[0]), dict(encoded[1])])
    assert batch["attention_mask"].sum() == sum(encoded["length"][:2])


def test_numbers_are_labels_too(write):
    task = find_task("text-classification")
    splits = task.load(write("a.csv", "text,label\n" + "".join(f"t{i},{i % 11}\n" for i in range(33))))
    assert task.fitted(splits).labels == tuple(map(str, range(11)))


def test_labels_that_a_dataset_keeps_as_numbers_have_their_names(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    rows = {"text": [text for text, _ in REVIEWS], "label": [int(label == "pos") for _, label in REVIEWS]}
    dataset = Dataset.from_dict(rows, features=features)
    DatasetDict({"train": dataset, "test": dataset.select([1])}).save_to_disk(tmp_path / "split")
    splits = find_task("text-classification").load(tmp_path / "split")
    assert splits.train["label"][:] == [label for _, label in REVIEWS]
    assert splits.heldout.to_dict() == {"text": ["bad"], "label": ["neg"], "row_number": [1]}
    dataset.save_to_disk(tmp_path / "whole")
    whole = find_task("text-classification").load(tmp_path / "whole")
    assert (len(whole.train), len(whole.heldout)) == (4, 1)


def test_a_label_that_is_only_held_out_is_named_with_its_line(write):
    write("train.tsv", tsv(REVIEWS))
    folder = write("validation.tsv", tsv([("fine", "pos"), ("meh", "neutral")])).parent
    with pytest.raises(DataError, match=r"validation.tsv, line 3: label 'neutral' is not in .*; valid: neg, pos"):
        find_task("text-classification").load(folder)
    assert len(find_task("text-classification:labels=['neg', 'neutral', 'pos']").load(folder).heldout) == 2
    write("train.conll", CONLL)
    folder = write("dev.conll", "Rio B-GPE\n").parent
    (folder / "train.tsv").unlink()
    (folder / "validation.tsv").unlink()
    with pytest.raises(DataError, match=r"dev.conll, line 1: label 'B-GPE' is not in"):
        find_task("token-classification").load(folder)


def test_a_folder_without_a_held_out_part_takes_a_file(write):
    folder = write("train.tsv", tsv(REVIEWS)).parent
    splits = find_task("text-classification").load(folder, heldout=write("other.tsv", tsv([("fine", "neg")])))
    assert (len(splits.train), splits.heldout["label"][:]) == (len(REVIEWS), ["neg"])


@pytest.mark.parametrize("kind", ["bpe", "character", "word", "explicando-character"])
def test_a_label_is_at_the_first_piece_of_its_token(write, kind):
    rows = [{"tokens": ["Ana", "lives", "here"], "tags": ["B-PER", "O", "O"]}, {"tokens": "No way", "tags": "O O"}]
    task = find_task("token-classification")
    splits = task.load(write("a.jsonl", "\n".join(map(json.dumps, rows * 2))))
    task = task.fitted(splits)
    tokenizers = task.train_tokenizers(splits.train, kind=kind)
    train, encoded = splits.train, task.encode(splits.train, tokenizers)
    for tokens, tags, row in zip(train["tokens"], train["tags"], encoded, strict=True):
        assert row["input_ids"] == tokenizers.source.encode(" ".join(tokens))
        assert [task.labels[label] for label in row["labels"] if label != IGNORED] == tags
        assert len(row["labels"]) == len(row["input_ids"]) == row["length"]
        starts = [place for place, label in enumerate(row["labels"]) if label != IGNORED]
        pieces = [tokenizers.source.decode(row["input_ids"][a:b]).strip() for a, b in itertools.pairwise(starts)]
        if kind != "word":
            assert pieces == tokens[:-1]


def test_conll_files_are_read(write):
    task = find_task("token-classification")
    splits = task.load(write("a.conll", CONLL * 3))
    rows = [(row["tokens"], row["tags"]) for part in splits for row in part]
    assert (["No"], ["O"]) in rows and len(rows) == 6
    sentence, tags = ["Ana", "lives", "in", "Nova", "Iorque"], ["B-PER", "O", "O", "B-LOC", "I-LOC"]
    assert (sentence, tags) in rows
    parts = task.load(write("a.conll", CONLL * 3), columns=[0, 1])
    assert set(task.fitted(parts).labels) == {"NNP", "VBZ", "IN", "DT"}


def test_tokens_of_conll_files_may_hold_blanks_and_comments_are_no_tokens(write):
    text = (
        "# sent_id = 1\n# text = 10 000 euros\n10 000\tB-N\neuros\tO\n\n# id 7 domain=en\n10\u00a0000 _ B-N\n# _ O\n\n"
    )
    splits = find_task("token-classification").load(write("a.conll", text * 2))
    rows = [(row["tokens"], row["tags"]) for part in splits for row in part]
    assert sorted(rows) == sorted([(["10 000", "euros"], ["B-N", "O"]), (["10\xa0000", "#"], ["B-N", "O"])] * 2)


def test_comments_of_conll_files_have_other_fields_than_tokens(write):
    text = "# newpar\n# Author\tof it\tAna\nAna\tB-PER\n#\tO\n\n#\tO\n1\tO\n\n# a b c\n# newdoc id\n#\tO\n\n"
    splits = find_task("token-classification").load(write("a.conll", text * 2))
    rows = [(row["tokens"], row["tags"]) for part in splits for row in part]
    assert sorted(rows) == sorted([(["Ana", "#"], ["B-PER", "O"]), (["#", "1"], ["O", "O"]), (["#"], ["O"])] * 2)
    blanks = find_task("token-classification").load(write("b.conll", "# one sentence\n# O\nAna B-PER\nis O\n\n" * 2))
    assert [row["tokens"] for part in blanks for row in part] == [["#", "Ana", "is"]] * 2


def test_a_line_of_a_conll_file_that_may_be_a_comment_or_a_token_is_read_by_its_label(write):
    text = "# a=b\n# A=b\nAna A=b\n\n"
    splits = find_task("token-classification").load(write("a.conll", text * 2))
    assert [row["tags"] for part in splits for row in part] == [["A=b", "A=b"]] * 2
    with pytest.raises(DataError, match="a.conll, line 4: '# newdoc' is a comment, or the token '#' with a label"):
        find_task("token-classification").load(write("a.conll", "Ana B\nis O\n\n# newdoc\nAna B\n"))


def test_labels_that_are_one_number_have_one_order(write):
    text = "text,label\n" + "".join(f"t{i},{label}\n" for i, label in enumerate(["1", "01", "001", "2"] * 5))
    task = find_task("text-classification")
    assert task.fitted(task.load(write("a.csv", text))).labels == ("001", "01", "1", "2")


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [
        (("label", "text_a"), "text_a", "label"),
        (("Label", "Review"), "Review", "Label"),
        (("id", "gold_label", "sentence1"), "sentence1", "gold_label"),
        (("premise", "hypothesis", "label"), "premise", "label"),
        (("first", "second"), "first", "second"),
    ],
)
@pytest.mark.parametrize("suffix", ["tsv", "jsonl"])
def test_a_column_named_like_a_label_is_the_label(write, header, text, label, suffix):
    lines = [dict.fromkeys(header, "a")] * 4
    rows = "\n".join(map(json.dumps, lines)) if suffix == "jsonl" else "\n".join(map("\t".join, [header, *lines]))
    assert find_task("text-classification").load(write(f"a.{suffix}", rows)).train.column_names[:2] == [text, label]


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        ("text-classification", [("gut", f"text {i}") for i in range(20)], r"19 different values among 19;.*recur"),
        ("text-classification", [(f"text {i}", "gut") for i in range(20)], r"only the value 'gut' among 19;"),
        ("token-classification", [(f"a{i} b{i}", f"{i} {-i}") for i in range(20)], r"different values among 38"),
    ],
)
def test_labels_that_cannot_be_meant_are_refused(write, task, rows, message):
    found = find_task(task)
    splits = found.load(write("a.tsv", "".join("\t".join(row) + "\n" for row in [("first", "second"), *rows])))
    with pytest.raises(DataError, match=rf"a.tsv: column 'second' .* {message}.*--columns second,first"):
        found.fitted(splits)
    assert find_task(f"{task}:labels=['a', 'b']").fitted(splits).labels == ("a", "b")


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("text-classification", "a.tsv", "text\tlabel\ngood\t \n", "a.tsv, line 2: column 'label' is empty.*--columns"),
        (
            "text-classification",
            "a.csv",
            'label,text\npos,"good\nneg,bad\n',
            "a.csv, line 2: not valid CSV: unexpected end",
        ),
        ("text-classification", "a.jsonl", '{"text": "a", "label": {}}\n', "a.jsonl, line 1: column 'label' is not"),
        ("token-classification", "a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "line 1: 2 tokens and 1 labels"),
        ("token-classification", "a.jsonl", '{"tokens": [], "tags": []}', "line 1: column 'tokens' is empty"),
        ("token-classification", "a.conll", "Ana B-PER\nhere\n", "a.conll, line 2: 1 field where 2 are expected"),
        ("text-classification", "a.conll", CONLL, "a.conll: CoNLL files hold labels of tokens"),
    ],
)
def test_what_is_wrong_is_named(write, task, name, content, message):
    with pytest.raises(DataError, match=message):
        find_task(task).load(write(name, content))


def test_labels_are_a_list():
    with pytest.raises(ConfigError, match=r"labels='\[neg,pos\]' is not valid"):
        find_task("text-classification:labels=[neg,pos]")


def test_datasets_that_cannot_be_loaded(monkeypatch):
    def offline(name, configuration):
        raise ConnectionError(f"no network\nfor {name} {configuration}")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(DataError, match="dataset me/reviews:en cannot be loaded: ConnectionError: no network"):
        find_task("text-classification").load("me/reviews:en")
    with pytest.raises(DataError, match="folder/reviews.tsv does not exist"):
        find_task("text-classification").load("folder/reviews.tsv")
    empty = Dataset.from_dict({"text": [], "label": []})
    monkeypatch.setattr("datasets.load_dataset", lambda *name: DatasetDict({"train": empty}))
    with pytest.raises(DataError, match="dataset me/reviews is empty"):
        find_task("text-classification").load("me/reviews")


def test_loading_a_dataset_shows_bars_only_where_they_are_wanted(tmp_path, monkeypatch, capsys):
    (tmp_path / "reviews.jsonl").write_text('{"text": "fine", "label": "pos"}\n' * 5)
    files = {"data_files": str(tmp_path / "reviews.jsonl"), "cache_dir": str(tmp_path / "cache")}

    def load(name, configuration):
        return load_dataset("json", **files, download_mode="force_redownload")

    monkeypatch.setattr("datasets.load_dataset", load)
    for progress in (True, False):
        with pytest.raises(DataError, match="did you mean 'text'"):
            zoo.train("bert-style", "text-classification", data="me/r", columns=["txt", "label"], progress=progress)
        assert ("Generating" in capsys.readouterr().err) is progress


def test_tokens_beyond_the_greatest_length_are_counted_in_the_signature():
    rows = {"tokens": [["Ana", "lives", "there"], ["Rio"]], "tags": [["B-P", "O", "O"], ["B-L"]]}
    task, examples = find_task("token-classification"), Dataset.from_dict(rows)
    task = task.fitted(Splits(examples, examples))
    for ids, note in (([[1, 2, 2], [0]], ""), ([[1, 2], [0]], "|beyond max_length:1")):
        for score in task.score(Predictions(0.0, 4, ids=ids, labels=ids), examples).values():
            assert score.value == 100 and score.signature.endswith(note) and ("beyond" in score.signature) == bool(note)


def test_a_task_without_a_collator_is_named() -> None:
    class Own(LabelsTask):
        encode = score = None  # type: ignore[assignment]

    with pytest.raises(NotImplementedError, match="Own has neither a collator_class nor a collator"):
        object.__new__(Own).collator(None)  # type: ignore[arg-type]
