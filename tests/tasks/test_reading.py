"""Reading data: what is right is read, what is wrong is named with its file and line."""

import json
import warnings
from functools import partial

import pytest
from datasets import ClassLabel, Dataset, Features, Sequence, Value, load_dataset

from zoo.data.tasks import DataError, Kind, UnknownColumnError, find_task, load_splits, read_columns
from zoo.data.tasks.tables import DataWarning, chosen_columns, place_of

PAIRS = {"en": ["Hello.", "Good night, Ana."], "pt": ["Olá.", "Boa noite, Ana."]}


def as_tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows)


ROWS = list(zip(*PAIRS.values(), strict=True))


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_every_format_reads_alike(write, tmp_path, suffix):
    file = tmp_path / f"pairs.{suffix}"
    if suffix == "parquet":
        Dataset.from_dict(PAIRS).to_parquet(file)
    elif suffix == "jsonl":
        write(file.name, "".join(json.dumps({"en": en, "pt": pt}) + "\n" for en, pt in ROWS))
    elif suffix == "csv":
        write(file.name, 'en,pt\nHello.,Olá.\n"Good night, Ana.","Boa noite, Ana."\n')
    else:
        write(file.name, as_tsv([("en", "pt"), *ROWS]))
    places = {"parquet": {"row_number": [1, 2]}, "jsonl": {"line_number": [1, 2]}}.get(suffix, {"line_number": [2, 3]})
    assert read_columns(file).to_dict() == {**PAIRS, **places}
    assert read_columns(file, ["pt", "en"]).column_names == ["pt", "en", *places]
    assert read_columns(file, ["pt", "en"]).select_columns(["pt", "en"])[0] == {"pt": "Olá.", "en": "Hello."}


def test_a_header_that_is_read_as_data_is_named(write):
    file = write("a.tsv", as_tsv([("label", "text"), ("good", "A dog."), ("bad", "A cat.")]))
    with pytest.warns(
        DataWarning, match=r"a.tsv, line 1 is read as data, and has the name 'text'.*--columns text,label"
    ):
        assert len(read_columns(file, [1, 0], kinds=(Kind.TEXT, Kind.LABEL))) == 3


def test_columns_by_number_need_no_header(write):
    file = write("pairs.tsv", as_tsv([(*row, "someone") for row in ROWS]))
    read = read_columns(file, [0, 1])
    assert len(read) == 2 and read[0] == {"0": "Hello.", "1": "Olá.", "line_number": 1}


def test_a_first_line_that_looks_like_data_is_named(write):
    for name, rows in (("a.tsv", ROWS), ("b.csv", [("1", "two"), ("3", "four")])):
        text = as_tsv(rows).replace("\t", "," if name.endswith("csv") else "\t")
        with pytest.warns(DataWarning, match=r"line 1 was taken for the names .*if that line is data.*--columns 0,1"):
            read_columns(write(name, text))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_columns(write("c.tsv", as_tsv([("sentence_en", "pt-BR"), *ROWS])))
        read_columns(write("a.tsv", as_tsv(ROWS)), [0, 1])


def test_text_keeps_its_blanks_as_pipelines_do_and_labels_lose_them(write):
    rows = [("a fine film ", " 1"), ("  dull", "0 ")]
    read = read_columns(write("a.tsv", as_tsv([("sentence", "label"), *rows])), kinds=(Kind.TEXT, Kind.LABEL))
    assert read["sentence"] == ["a fine film ", "  dull"] and read["label"] == ["1", "0"]


@pytest.mark.parametrize("tags", [[[0, -1]], [[0, None]], [None]])
def test_a_token_of_a_data_set_without_a_label_is_named(tags, tmp_path):
    kinds = Features(tokens=Sequence(Value("string")), tags=Sequence(ClassLabel(names=["O", "B"])))
    rows = {"tokens": [["a", "b"], ["a", "b"]], "tags": [[0, 1], *tags]}
    Dataset.from_dict(rows, kinds).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match="row 2: column 'tags' is empty; leave the row out"):
        find_task("token-classification").load(tmp_path / "saved")


def test_parquet_is_read_in_silence(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    labels = ClassLabel(names=["bad", "good"])
    data = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, Features(text=Value("string"), label=labels))
    data.to_parquet(tmp_path / "a.parquet")
    capfd.readouterr()
    assert read_columns(tmp_path / "a.parquet", kinds=(Kind.TEXT, Kind.LABEL))["label"] == ["bad", "good"]
    assert capfd.readouterr() == ("", "")


def test_byte_order_mark_and_windows_lines_are_no_text(write):
    file = write("pairs.tsv", b"\xef\xbb\xbfen\tpt\r\nHello.\tOl\xc3\xa1.\r\n\r\n")
    assert read_columns(file).to_dict() == {"en": ["Hello."], "pt": ["Olá."], "line_number": [2]}


def test_a_csv_field_may_hold_line_breaks(write):
    file = write("pairs.csv", 'en,pt\n"one\ntwo",três\nfour\n')
    with pytest.raises(DataError, match="line 4: 1 field where 2 are expected"):
        read_columns(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "en\tpt\n", "has no data"),
        ("a.csv", "en,pt,en\nHello.,Olá.,Hi.\n", "line 1: 2 columns are called 'en'"),
        ("a.tsv", "en\tpt\nHello.\t \n", "line 2: column 'pt' is empty"),
        ("a.csv", "en,pt\nHello.,Olá.,\nHello, Ana,Olá\n", "line 3: 3 fields where 2 are expected"),
        ("a.csv", 'en,pt\na,"' + "b" * 200_000 + '"\n', "line 2: not valid CSV"),
        ("a.jsonl", '{"en": "Hello.", "pt": "Olá."}\n{"en": \n', "line 2: not valid JSON"),
        ("a.jsonl", '{"en": "Hi.", "pt": "Oi.", "en": "Hi."}\n', "line 1: not valid JSON: an object has a name twice"),
        ("a.jsonl", '["en"]\n', "line 1: a JSON object is expected"),
        ("a.jsonl", '{"en": "Hi.", "pt": "\\ud83d"}\n', "line 1: column 'pt' .* surrogates not allowed"),
        ("a.jsonl", '{"en": "Hello.", "pt": 3}\n', "line 1: column 'pt' is not text"),
        ("a.jsonl", '{"en": "a", "pt": "b"}\n{"en": "Hello."}\n', "unknown column 'pt' of .*line 2"),
        ("a.parquet", "not parquet", "not a valid Parquet file"),
        ("a.tvs", "x", r"did you mean '\.tsv'"),
    ],
)
def test_what_is_wrong_is_named(write, name, content, message):
    file = write(name, content)
    with pytest.raises(DataError, match=message) as caught:
        read_columns(file)
    assert str(file) in str(caught.value)


def test_an_unknown_column_is_named_with_the_nearest(write):
    file = write("pairs.tsv", as_tsv([("english", "portuguese"), *ROWS]))
    with pytest.raises(UnknownColumnError, match="did you mean 'english'"):
        read_columns(file, ["engish", "portuguese"])


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        load_splits(tmp_path / "nothing.tsv")


def test_a_folder_brings_its_own_held_out_examples(write, tmp_path):
    write("train.tsv", as_tsv([("en", "pt"), *ROWS]))
    write("validation.jsonl", json.dumps({"pt": "Tchau.", "en": "Bye."}) + "\n")
    splits = load_splits(tmp_path)
    assert len(splits.train) == 2 and splits.heldout.to_dict() == {"en": ["Bye."], "pt": ["Tchau."], "line_number": [1]}


def test_a_folder_without_held_out_examples(write, tmp_path):
    write("train.tsv", as_tsv([("en", "pt"), *ROWS]))
    with pytest.raises(DataError, match="no file called heldout or validation"):
        load_splits(tmp_path)


def test_a_single_file_is_split_alike_every_time(write):
    file = write("pairs.tsv", as_tsv([("en", "pt"), *((f"word {i}", f"palavra {i}") for i in range(100))]))
    first, again, other = load_splits(file), load_splits(file), load_splits(file, seed=1)
    assert len(first.heldout) == 5 and len(first.train) == 95
    assert first.heldout.to_dict() == again.heldout.to_dict() != other.heldout.to_dict()
    assert not set(first.train["en"]) & set(first.heldout["en"])


def test_the_columns_of_translation_datasets_are_found(tmp_path):
    rows = [{"translation": {"en": f"word {i}", "pt": f"palavra {i}"}} for i in range(3)]
    Dataset.from_list(rows).to_parquet(tmp_path / "pairs.parquet")
    row = {"translation.en": "word 1", "translation.pt": "palavra 1", "row_number": 2}
    assert read_columns(tmp_path / "pairs.parquet")[1] == row


@pytest.mark.parametrize(
    ("header", "kinds", "read"),
    [
        (("id", "review", "language"), (Kind.TEXT, Kind.LABEL), ["review", "language"]),
        (("text_id", "label", "review"), (Kind.TEXT, Kind.LABEL), ["review", "label"]),
        (("", "review"), (Kind.TEXT,), ["review"]),
        (("Unnamed: 0", "review"), (Kind.TEXT,), ["review"]),
        (("sentence_idx", "en", "pt"), (Kind.SOURCE, Kind.TEXT), ["en", "pt"]),
        (("id", "en"), (Kind.SOURCE, Kind.TEXT), ["id", "en"]),  # Indonesian
        (("id",), (Kind.TEXT,), ["id"]),
    ],
)
def test_columns_that_number_rows_are_not_read(header, kinds, read):
    assert chosen_columns(header, kinds, None, "a.csv") == read


def test_pairs_that_are_too_long_are_left_out_or_cut(write):
    rows = [("a b c", "d e"), ("a", "d e f g"), ("a b", "c d")]
    file = write("pairs.tsv", as_tsv([("x", "y"), *rows]))
    for options, expected in (("max_length=3", [["a b", "c d"]]), ("max_length=4", rows[::2])):
        task = find_task(f"translation:{options}")
        examples = read_columns(file)
        tokenizers = task.train_tokenizers(examples, kind="word", min_frequency=1)
        encoded = task.encode(examples, tokenizers, training=True)
        decode = partial(tokenizers.target.batch_decode, skip_special_tokens=True)
        texts = [decode(encoded[side][:]) for side in ("input_ids", "labels")]
        assert list(zip(*texts, strict=True)) == [tuple(row) for row in expected]
        assert len(task.encode(examples, tokenizers)) == 3
    cut = find_task("translation:max_length=2,cut=true").encode(examples, tokenizers, training=True)
    assert [len(ids) for ids in cut["labels"]] == [2, 2, 2]
    with pytest.raises(DataError, match=r"pairs.tsv: all 3 .* more than max_length=2 tokens; the shortest has 3"):
        find_task("translation:max_length=2").encode(examples, tokenizers, training=True)


def test_a_column_of_texts_may_be_called_like_the_one_of_lines(write):
    rows = [("line_number", "pt"), *ROWS]
    assert place_of(read_columns(write("a.tsv", as_tsv(rows))), 1) is None
    assert place_of(read_columns(write("b.tsv", as_tsv([("en", "pt"), *ROWS]))), 1).endswith("b.tsv, line 3")


@pytest.mark.parametrize("folder", [".", "data"])
def test_shards_of_a_folder_are_read_as_datasets_reads_them(folder, tmp_path):
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    rows = [{"text": f"text {i}", "label": i % 2} for i in range(7)]
    for number, shard in enumerate((rows[:2], rows[2:5])):
        Dataset.from_list(shard).to_parquet(place / f"train-{number:05}-of-00002.parquet")
    Dataset.from_list(rows[5:]).to_parquet(place / "validation-00000-of-00001.parquet")
    splits = load_splits(tmp_path, kinds=(Kind.TEXT, Kind.LABEL))
    loaded = load_dataset(str(tmp_path), cache_dir=tmp_path / "cache")
    assert splits.train["text"][:] == loaded["train"]["text"][:] and splits.train["label"][:] == [
        "0",
        "1",
        "0",
        "1",
        "0",
    ]
    assert splits.heldout["text"][:] == loaded["validation"]["text"][:]
    assert place_of(splits.train, 3) == f"{tmp_path}, train, row 4"
    Dataset.from_list([{"text": "text", "class": 1}]).to_parquet(place / "train-00001-of-00002.parquet")
    with pytest.raises(DataError, match="train cannot be joined: .*00001.* has the columns text, class"):
        load_splits(tmp_path, kinds=(Kind.TEXT, Kind.LABEL))
