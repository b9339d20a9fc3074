"""Held-out examples decide nothing: they are neither trained on nor chosen by."""

import json
import warnings

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value, concatenate_datasets
from safetensors.torch import load_file

import zoo
from zoo.base.errors import ZooWarning
from zoo.data.tasks import TASKS, DataError, DataSource, Splits, UnknownColumnError, find_task, train_tokenizers
from zoo.data.tasks.reading import documents
from zoo.data.tasks.sources import contents, given_examples
from zoo.data.tasks.tables import DataWarning
from zoo.data.tokenizers import leave_open, train_word
from zoo.training.evaluate import EvaluationWarning
from zoo.training.inputs import check_beginning
from zoo.training.record import RunRecord


def pairs(file, rows):
    file.write_text("en\tpt\n" + "".join(f"{row['en']}\t{row['pt']}\n" for row in rows), encoding="utf-8")
    return file


def test_what_is_held_out_is_not_trained_on(tiny, tmp_path):
    examples = TASKS.get("translation").load().train.select(range(100))
    train = pairs(tmp_path / "train.tsv", examples)
    heldout = pairs(tmp_path / "heldout.tsv", examples.select(range(50)))
    folder = tmp_path / "model"
    with pytest.warns(DataWarning, match="50 examples are among those to train on and among the held-out .*leaves 50"):
        run = zoo.train("pre-norm", data=train, heldout=heldout, output_dir=folder, **tiny).run
    assert (run.data.duplicates, run.data.train.examples, run.data.heldout.examples) == (50, 50, 50)
    assert RunRecord.from_dict(json.loads((folder / "result.json").read_text())).data.duplicates == 50
    assert zoo.evaluate(folder).repeats_training
    with pytest.raises(DataError, match="all 50 examples to train on are held-out examples as well"):
        find_task("translation").load_from(DataSource(str(heldout), str(train)))


def test_data_without_a_held_out_part_are_scored_in_part_with_a_warning(tmp_path):
    examples = TASKS.get("translation").load().train.select(range(40))
    examples.save_to_disk(tmp_path / "saved")
    tokenizers = TASKS.get("translation").train_tokenizers(examples, kind="word", joint=True)
    model = zoo.build(
        "pre-norm@tiny", "seq2seq-lm", vocab_size=len(tokenizers.source), pad_token_id=tokenizers.source.pad_token_id
    )
    given = {"task": "translation", "tokenizer": tokenizers, "n_bootstrap": 1}
    with pytest.warns(EvaluationWarning, match="saved has no held-out part: only 2 of its examples are scored"):
        assert zoo.evaluate(model, data=tmp_path / "saved", **given).examples == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        assert zoo.evaluate(model, data=pairs(tmp_path / "all.tsv", examples), **given).examples == 40


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(TASKS))
def test_tasks_train_on_nothing_that_is_held_out(name):
    task = TASKS.get(name)
    if task.makes_examples or task.shipped is not None:
        splits = task.load()
        assert not set(contents(splits.train, task.kinds)) & set(contents(splits.heldout, task.kinds))


@pytest.mark.thorough
@pytest.mark.parametrize("choice", [{"load_best_model_at_end": True}, {"early_stopping_patience": 1}])
def test_held_out_examples_choose_nothing(tiny, tmp_path, choice):
    examples = TASKS.get("translation").load().train
    train, others = examples.select(range(60)), examples.select(range(100, 140))
    wrong = others.map(lambda row, at: {"pt": others[39 - at]["pt"]}, with_indices=True)
    weights, losses = [], []
    for number, heldout in enumerate((others, concatenate_datasets([wrong, others.select(range(3))]))):
        settings = {**tiny, "max_steps": 12, "eval_strategy": "steps", "eval_steps": 3, "learning_rate": 0.3, **choice}
        folder = tmp_path / str(number)
        result = zoo.train("pre-norm", data=Splits(train, heldout), output_dir=folder, **settings)
        weights.append(load_file(folder / "model.safetensors"))
        losses.append([entry["eval_loss"] for entry in result.report.evaluations])
        data = result.run.data
        assert data.selection.examples == 3 and data.train.examples == 57 and data.heldout.examples == len(heldout)
    assert losses[0] == losses[1] and len(losses[0]) > 1
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_copies_of_what_is_chosen_by_are_not_trained_on(tiny):
    examples = TASKS.get("translation").load().train
    splits = Splits(concatenate_datasets([examples.select(range(20))] * 3), examples.select(range(100, 110)))
    data = zoo.train("pre-norm", data=splits, early_stopping_patience=1, **{**tiny, "max_steps": 1}).run.data
    assert data.selection.examples == 3 and data.train.examples in (51, 54)  # of three pairs, or of two


def test_held_out_texts_are_found_with_any_blanks_around_them(tmp_path):
    for name, texts in (("train", ["a b\n", " c", "d"]), ("heldout", ["a b", "c"])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    splits = find_task("language-modeling").load_from(DataSource(str(tmp_path)))
    assert splits.duplicates == 2 and splits.train["text"][:] == ["d"]


@pytest.mark.parametrize(
    ("name", "texts", "labels"),
    [
        ("text-classification", ("text", ["a b ", "c", "d"], ["a b", "c"]), ("label", list("yny"), list("yy"))),
        (
            "token-classification",
            ("tokens", [["a", "b"], ["c"], ["d"]], [["a", "b"], ["c"]]),
            ("tags", [["y", "n"], ["n"], ["y"]], [["y", "n"], ["y"]]),
        ),
    ],
)
def test_texts_that_are_held_out_with_another_label_are_not_trained_on(name, texts, labels, tmp_path):
    for place, split in enumerate(("train", "heldout"), start=1):
        rows = zip(texts[place], labels[place], strict=True)
        lines = (json.dumps({texts[0]: text, labels[0]: label}) + "\n" for text, label in rows)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    splits = find_task(name).load_from(DataSource(str(tmp_path)))
    assert splits.duplicates == 2 and splits.train[texts[0]][:] == texts[1][2:]


@pytest.mark.parametrize("name", ["text-classification", "translation"])
def test_a_column_called_document_is_compared_as_well(name, tmp_path):
    rows = [f"text {number}\t{number % 2}\n" for number in range(40)]
    (tmp_path / "all.tsv").write_text("document\tlabel\n" + "".join(rows))
    splits = find_task(name).load_from(DataSource(str(tmp_path / "all.tsv")))
    assert splits.duplicates == 0 and len(splits.train) == 38


def test_the_seed_of_the_data_chooses_what_is_set_aside(tiny, tmp_path):
    file = pairs(tmp_path / "all.tsv", TASKS.get("translation").load().train.select(range(60)))
    settings = {**tiny, "max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "early_stopping_patience": 1}
    found = [
        zoo.train("pre-norm", data=file, seed=seed, data_seed=data_seed, **settings).run.data
        for seed, data_seed in ((0, 5), (1, 5), (1, 6))
    ]
    assert found[0] == found[1]
    assert found[1].heldout != found[2].heldout and found[1].selection != found[2].selection


def test_an_evaluation_on_the_data_of_the_training_holds_out_the_same(tiny, tmp_path):
    TASKS.get("translation").load().train.select(range(60)).save_to_disk(tmp_path / "data")
    result = zoo.train("pre-norm", data=tmp_path / "data", seed=3, output_dir=tmp_path / "model", **tiny)
    found = zoo.evaluate(tmp_path / "model", data=tmp_path / "data")
    assert found.loss == result.report.heldout_loss and found.outputs == result.outputs


def test_a_beginning_that_no_text_has_is_named(tmp_path):
    tokenizers = train_tokenizers(["a b c"], vocab_size=280)
    with pytest.warns(ZooWarning, match="between them and without <bos>, by which suites score sentences"):
        check_beginning(find_task("language-modeling"), tokenizers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_beginning(find_task("masked-language-modeling"), tokenizers)
        leave_open(tokenizers.source)
        check_beginning(find_task("language-modeling"), tokenizers)


def test_datasets_that_were_loaded_elsewhere_are_read_by_their_columns():
    english, german = ["a dog", "the cat sat", "no"], ["ein Hund", "die Katze sass", "nein"]
    tokenizer = train_word([*english, *german])
    settings = {"vocab_size": len(tokenizer), "seed": 0}
    given = {"tokenizer": tokenizer, "n_bootstrap": 1, "generation": {"max_new_tokens": 2}}
    model = zoo.build("pre-norm@tiny", "seq2seq-lm", **settings)
    pairs = Dataset.from_dict({"en": english, "de": german})
    more = Dataset.from_dict({"id": ["1", "2", "3"], "de": german, "en": english})
    expected = zoo.evaluate(model, "translation", data=pairs, **given).loss
    assert zoo.evaluate(model, "translation", data=more, columns=["en", "de"], **given).loss == expected
    with pytest.raises(UnknownColumnError, match="did you mean 'en'"):
        zoo.evaluate(model, "translation", data=more, columns=["eng", "de"], **given)
    with pytest.raises(DataError, match="given dataset: 1 column where 2 are expected"):
        zoo.evaluate(model, "translation", data=more.select_columns(["id"]), **given)
    with pytest.raises(DataError, match="given dataset has no examples"):
        zoo.evaluate(model, "translation", data=pairs.select([]), **given)
    del given["generation"]
    model = zoo.build("llama-style@tiny", "causal-lm", **settings)
    expected = zoo.evaluate(model, "language-modeling", data=documents(english), **given).loss
    for name, columns in (("text", None), ("content", None), ("de", ["de"])):
        texts = Dataset.from_dict({"id": [1, 2, 3], name: english})
        assert zoo.evaluate(model, "language-modeling", data=texts, columns=columns, **given).loss == expected
    model = zoo.build("bert-style@tiny", "sequence-classification", num_labels=2, **settings)
    model.config.id2label = {0: "0", 1: "1"}
    labelled = Dataset.from_dict({"text": english, "label": [0, 1, 0]})
    assert zoo.evaluate(model, "text-classification", data=labelled, **given).examples == 3
    with pytest.raises(DataError, match="label '2' is unknown; valid: 0, 1"):
        zoo.evaluate(model, "text-classification", data=labelled.map(lambda row: {"label": 2}), **given)


def test_columns_of_given_datasets_are_chosen_as_those_of_files(tiny, tmp_path):
    examples = TASKS.get("translation").load().train.select(range(8))
    file = pairs(tmp_path / "all.tsv", examples)
    trained = {"heldout": pairs(tmp_path / "some.tsv", examples.select([0])), "columns": ["pt", "en"], **tiny}
    zoo.train("pre-norm", data=file, output_dir=tmp_path / "model", **trained)
    expected = zoo.evaluate(tmp_path / "model", data=file, n_bootstrap=1).loss
    numbered = Dataset.from_dict({"id": ["1"] * 8, **{name: examples[name] for name in ("en", "pt")}})
    assert zoo.evaluate(tmp_path / "model", data=numbered, n_bootstrap=1).loss == expected
    assert given_examples(numbered, find_task("translation").kinds).column_names == ["en", "pt"]
    sentences = [json.dumps({"text": text}) + "\n" for text in examples["en"]]
    (tmp_path / "texts.jsonl").write_text("".join(sentences))
    given = {name: value for name, value in tiny.items() if name != "generation"}
    texts = {"data": tmp_path / "texts.jsonl", "columns": ["text"], "output_dir": tmp_path / "texts"}
    zoo.train("pre-norm", "language-modeling:block_size=4", **texts, **given)
    parts = Dataset.from_dict({"text": ["a dog. ", "a cat."], "document": [0, 0]})  # of one document
    whole = Dataset.from_dict({"text": ["a dog. a cat."], "document": [0]})
    assert zoo.evaluate(tmp_path / "texts", data=parts).loss == zoo.evaluate(tmp_path / "texts", data=whole).loss
    (tmp_path / "one.txt").write_text(sentences[0] * 3)
    assert zoo.evaluate(tmp_path / "texts", data=tmp_path / "one.txt", n_bootstrap=1).examples > 1
    with pytest.raises(DataError, match=r"columns=\['text'\] were given, and .*one.txt is one text without any"):
        zoo.evaluate(tmp_path / "texts", data=tmp_path / "one.txt", columns=["text"])


def test_columns_of_given_datasets_are_found_in_any_order_and_their_rows_checked():
    tags, texts = find_task("token-classification").kinds, find_task("language-modeling").kinds
    words = given_examples(Dataset.from_dict({"tags": ["O B-X", "O"], "tokens": ["by Ann", "no"]}), tags)
    assert words[:] == {"tokens": [["by", "Ann"], ["no"]], "tags": [["O", "B-X"], ["O"]]}
    for columns in (
        {"document": [4, 5], "text": ["a dog", "a cat"]},
        {"title": ["t"] * 2, "document": ["a dog", "a cat"]},
    ):
        given = given_examples(Dataset.from_dict(columns), texts)
        assert given.column_names == ["text", "document"] and given["text"][:] == ["a dog", "a cat"]
    with pytest.raises(DataError, match="the given dataset, row 2: column 'text' is empty"):
        given_examples(Dataset.from_dict({"text": ["a dog", None]}), texts)
    with pytest.raises(DataError, match="the given dataset, row 1: 1 tokens and 2 labels"):
        given_examples(Dataset.from_dict({"tokens": [["Ann"]], "tags": [["O", "O"]]}), tags)
    read = find_task("translation").load(columns=["pt", "en"]).train
    assert given_examples(read, find_task("translation").kinds) is read


@pytest.mark.parametrize("names", [["pos", "neg"], ["LABEL_0", "LABEL_1"], ["pos", "none", "neg"]])
def test_a_given_classifier_is_trained_on_its_own_labels(names, tmp_path):
    sentences = Dataset.from_dict({"text": ["good film", "bad film"] * 20, "label": ["pos", "neg"] * 20})
    heldout = Dataset.from_dict({"text": ["good", "bad"], "label": ["pos", "neg"]})
    task, given = find_task("text-classification"), Splits(sentences, heldout)
    tokenizers = task.train_tokenizers(sentences, kind="word", min_frequency=1)
    sizes = {"vocab_size": len(tokenizers.source), "pad_token_id": 0, "id2label": dict(enumerate(names))}
    sizes["label2id"] = {name: number for number, name in enumerate(names)}
    model = zoo.build("bert-style@tiny", "sequence-classification", seed=0, **sizes)
    run = {"max_steps": 20, "learning_rate": 1e-2, "use_cpu": True, "progress": False}
    zoo.train(model, task.name, data=given, tokenizer=tokenizers, output_dir=tmp_path / "model", **run)
    assert zoo.evaluate(tmp_path / "model", data=heldout).scores["accuracy"].value == 100
    assert [one.label for one in zoo.predict(tmp_path / "model", heldout["text"])] == ["pos", "neg"]
    three = zoo.build("bert-style@tiny", "sequence-classification", vocab_size=9, num_labels=3)
    with pytest.raises(DataError, match="the model has 3 labels, and the data 2: give num_labels"):
        zoo.train(three, task.name, data=given, tokenizer=tokenizers, **run)


@pytest.mark.parametrize("labels", [ClassLabel(names=["neg", "pos"]), Value("int64")])
def test_labels_of_given_datasets_that_are_numbers_become_names(labels, tiny):
    words = [f"{word} {number}" for number in range(9) for word in ("good", "bad")]
    given = {name: value for name, value in tiny.items() if name != "generation"}
    names = labels.names if isinstance(labels, ClassLabel) else ["0", "1"]
    features = Features({"text": Value("string"), "label": labels})
    sentences = Dataset.from_dict({"text": words, "label": [1, 0] * 9}, features=features)
    held = sentences.select(range(10, 18))
    trained = zoo.train("pre-norm", "text-classification", data=Splits(sentences.select(range(10)), held), **given)
    assert [*trained.model.config.id2label.values()] == names and {*trained.outputs} <= {*names}
    features = Features({"tokens": List(Value("string")), "tags": List(labels)})
    tagged = Dataset.from_dict({"tokens": [one.split() for one in words], "tags": [[1, 0]] * 18}, features=features)
    assert given_examples(tagged, find_task("token-classification").kinds)["tags"][:] == [names[::-1]] * 18
    evaluated = zoo.evaluate(trained.model, "text-classification", data=held, tokenizer=trained.tokenizers)
    assert evaluated.loss == pytest.approx(trained.report.heldout_loss)
