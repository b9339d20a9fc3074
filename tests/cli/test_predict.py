"""`zoo predict` and `zoo.predict`: the labels that evaluation counts, from Python and the command line."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from command_line import run as command
from transformers import AutoTokenizer, pipeline

import zoo
from zoo.base.errors import ConfigError
from zoo.building.weights import locate
from zoo.data.tasks import TOKENIZERS, find_task

REPORT = ("confusion", "labels", "errors")
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
OPTIONS = {"max_steps": 60, "learning_rate": 5e-3, "per_device_train_batch_size": 16, "use_cpu": True}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A model that knows good from bad, and what it was trained on."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"{'good' if at % 2 else 'bad'} thing {at % 7}\t{'yes' if at % 2 else 'no'}" for at in range(64)]
    (folder / "data.tsv").write_text("text\tlabel\n" + "\n".join(rows), encoding="utf-8")
    data = folder / "data.tsv"
    settings = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    options = [part for name, value in OPTIONS.items() for part in ("--training", f"{name}={value}")]
    where = ["--data", str(data), "--output", str(folder / "model"), "--quiet"]
    asked = ["train", "pre-norm", "--task", "text-classification", "--tokenizer", "word"]
    run = command(*asked, *settings, *options, *where)
    assert f"\n  zoo predict {folder}/model TEXT\n" in run.stdout, run.output
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    """A model that tells animals from other words."""
    folder = tmp_path_factory.mktemp("words")
    rows = [
        {"tokens": ["the", animal, "runs", str(place)], "tags": ["O", "ANIMAL", "O", "O"]}
        for place, animal in enumerate(("cat", "dog") * 32)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    zoo.train(
        "pre-norm", "token-classification", data=folder / "data.jsonl", tokenizer="word", settings=TINY,
        output_dir=folder / "model", progress=False, **OPTIONS,
    )  # fmt: skip
    return folder


def test_words_get_their_labels_whichever_side_the_tokenizer_pads(words):
    tokenizer = AutoTokenizer.from_pretrained(words / "model")
    tokenizer.padding_side = "left"
    model = zoo.load(words / "model")
    texts = ["the cat runs 1", "cat"]
    alone = [zoo.predict(model, [text], tokenizer=tokenizer)[0] for text in texts]
    assert [[word.label for word in one.words] for one in alone] == [["O", "ANIMAL", "O", "O"], ["ANIMAL"]]
    together = zoo.predict(model, texts, tokenizer=tokenizer)
    assert [[word.label for word in one.words] for one in together] == [["O", "ANIMAL", "O", "O"], ["ANIMAL"]]
    assert together[1].words[0].score == pytest.approx(alone[1].words[0].score, rel=1e-4)


def test_texts_get_their_labels_with_anything_around_them(texts):
    found = zoo.predict(texts / "model", ["good thing 3", "  bad thing 2 \n"], batch_size=1)
    assert [one.label for one in found] == ["yes", "no"] and all(one.score > 0.5 for one in found)
    run = command("predict", texts / "model", "good thing 3", "bad thing 2")
    assert [line.split("\t")[0] for line in run.stdout.splitlines()] == ["yes", "no"], run.output


def test_a_tokenizer_needs_no_padding(texts):
    lines, tokenizer = ["good", "bad thing 3"], AutoTokenizer.from_pretrained(texts / "model")
    expected = zoo.predict(texts / "model", lines)
    tokenizer.pad_token = None
    assert zoo.predict(zoo.load(texts / "model"), lines, tokenizer=tokenizer) == expected
    with pytest.raises(ConfigError, match="batch_size=0 is not valid"):
        zoo.predict(texts / "model", lines, batch_size=0)


def test_blanks_around_a_text_count_as_in_evaluation_and_in_pipelines(tmp_path):
    tokenizer = TOKENIZERS.get("bpe")(["good thing", "bad thing"])
    tokenizer.save_pretrained(tmp_path)
    zoo.build("pre-norm@tiny", "sequence-classification", vocab_size=len(tokenizer), seed=0).save_pretrained(tmp_path)
    texts = ["  bad thing ", "bad thing"]
    expected = [one["score"] for one in pipeline("text-classification", str(tmp_path))(texts)]
    assert [one.score for one in zoo.predict(tmp_path, texts)] == pytest.approx(expected) and expected[0] != expected[1]


@pytest.mark.parametrize("problem_type", ["multi_label_classification", "regression"])
def test_probabilities_are_those_of_the_problem(texts, problem_type):
    """As of transformers' pipeline: labels that exclude each other share one, and values have none."""
    model, tokenizer = zoo.load(texts / "model"), AutoTokenizer.from_pretrained(texts / "model")
    model.config.problem_type = problem_type
    given = ["good thing 3", "bad thing 2"]
    found = zoo.predict(model, given, tokenizer=texts / "model")
    expected = pipeline("text-classification", model, tokenizer=tokenizer, top_k=None)(given)
    for one, scores in zip(found, expected, strict=True):
        if problem_type == "regression":
            by_label = {score["label"]: score["score"] for score in scores}
            values = [by_label[model.config.id2label[place]] for place in range(len(by_label))]
            assert [float(value) for value in one.label.split(", ")] == pytest.approx(values, rel=1e-3)
            assert one.score is None
        else:
            assert one.label == scores[0]["label"] and one.score == pytest.approx(scores[0]["score"])


def test_words_are_read_between_the_tokens_that_frame_a_text():
    texts = ["the cat runs", "cat"]
    tokenizer = TOKENIZERS.get("explicando-character")(texts)  # "<bos> $A <eos>"
    model = zoo.build("bert-style@tiny", "token-classification", vocab_size=len(tokenizer), num_labels=3, seed=0)
    for text, found in zip(texts, zoo.predict(model, ["", *texts], tokenizer=tokenizer)[1:], strict=True):
        with torch.no_grad():
            shares = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
        firsts = [1, *(1 + place for place, letter in enumerate(text) if letter == " ")]
        assert [word.score for word in found.words] == pytest.approx(shares[firsts].max(-1).values.tolist())


def test_words_get_theirs(words):
    run = command("predict", words / "model", "the dog runs", "the cat")
    assert run.stdout.splitlines() == ["the/O dog/ANIMAL runs/O", "the/O cat/ANIMAL"], run.output
    assert zoo.predict(words / "model", ["", "the"])[0].words == ()


@pytest.mark.parametrize("kind", ["texts", "words"])
def test_texts_are_cut_where_training_cut_them(kind, texts, words, tmp_path):
    folder, line = {"texts": (texts, "good thing 3"), "words": (words, "the dog runs")}[kind]
    data = next(folder.glob("data.*"))
    settings = {"settings": TINY, "output_dir": tmp_path, "progress": False, **OPTIONS}
    zoo.train(
        "pre-norm",
        f"{kind[:-1].replace('word', 'token')}-classification:max_length=2",
        data=data,
        tokenizer="word",
        **settings,
    )
    longer = zoo.predict(tmp_path, [f"{line} {line}", line])
    if kind == "texts":
        assert longer[0].score == longer[1].score
        return
    assert [[word.label for word in one.words] for one in longer] == [
        ["O", "ANIMAL", None, None, None, None],
        ["O", "ANIMAL", None],
    ]
    run = command("predict", tmp_path, line)
    assert run.stdout == "the/O dog/ANIMAL runs\n", run.output


def test_positions_get_theirs(tmp_path):
    few = "compression:length=3,num_symbols=4,train_examples=40,heldout_examples=8"
    trained = zoo.train(
        "llama-style", few, tokenizer={"kind": "word", "min_frequency": 1}, settings=TINY,
        output_dir=tmp_path / "model", progress=False, **OPTIONS,
    )  # fmt: skip
    asked = find_task(few).load().heldout["question"]
    found = zoo.predict(tmp_path / "model", asked)
    assert [" ".join(word.label for word in one.words) for one in found] == trained.outputs
    run = command("predict", tmp_path / "model", asked[0])
    assert run.stdout == "{}\n".format(" ".join(f"{word.text}/{word.label}" for word in found[0].words)), run.output
    assert [word.text for word in found[0].words] == ["1", "2", "3"]


def test_masks_get_their_words():
    model, tokenizer = zoo.load("nlpt-encoder.mlm-en"), AutoTokenizer.from_pretrained(locate("nlpt-encoder.mlm-en"))
    text = "Where is <mask> house?"
    best = pipeline("fill-mask", model, tokenizer=tokenizer)(text)[0]
    several = f"{text} <mask> is here."
    found = zoo.predict("nlpt-encoder.mlm-en", [text, several])
    assert found[0].label == best["token_str"].strip() and found[0].score == pytest.approx(best["score"], rel=1e-5)
    assert found[0].words == () and [word.text for word in found[1].words] == ["<mask>", "<mask>"]
    run = command("predict", "nlpt-encoder.mlm-en", text)
    assert run.stdout.split("\t") == [found[0].label, f"{found[0].score:.4f}", f"{text}\n"], run.output
    with pytest.raises(ConfigError, match="'no mask' has no <mask>, where a masked language model guesses a word"):
        zoo.predict("nlpt-encoder.mlm-en", ["no mask"])


@pytest.mark.parametrize("text", ["bad <mask>", "<mask> thing"])
def test_a_mask_that_is_predicted_one_position_earlier_is_read_there(text):
    tokenizer = TOKENIZERS.get("bpe")(["good thing", "bad thing"])
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = zoo.build("gpt-bert-style@tiny", "masked-lm", vocab_size=len(tokenizer), seed=0)
    ids = [tokenizer.bos_token_id, *tokenizer(text)["input_ids"]][text.startswith("bad") :]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, ids.index(tokenizer.mask_token_id) - 1]
    (found,) = zoo.predict(model, [text], tokenizer=tokenizer)
    assert found.score == pytest.approx(logits.softmax(-1).max().item())


def test_a_model_that_writes_labels_nothing():
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=50)
    with pytest.raises(ConfigError, match=r"zoo.generate lets this one write"):
        zoo.predict(model, ["a"], tokenizer=TOKENIZERS.get("word")(["a b", "a b"]))
    with pytest.raises(ConfigError, match="give a list"):
        zoo.predict(model, "a")


def test_a_table_comes_out_as_a_table(texts, tmp_path):
    file = tmp_path / "data.csv"
    file.write_text('id,review,stars\n1,"good thing, 3",5\n2,bad thing 2,1\n', encoding="utf-8")
    for columns in ("review", "1", None):  # by default the first that is no number of the row
        asked = ["predict", str(texts / "model"), "-f", str(file), *([] if columns is None else ["--columns", columns])]
        rows = list(csv.reader(command(*asked).stdout.splitlines()))
        rows = rows if columns != "1" else [rows[0], *rows[2:]]  # by number, the first line is data
        assert rows[0] == ["text", "prediction", "probability"]
        assert [row[:2] for row in rows[1:]] == [["good thing, 3", "yes"], ["bad thing 2", "no"]]
        assert all(0.5 < float(row[2]) <= 1 for row in rows[1:])
    run = command("predict", texts / "model", "good", "--columns", "a")
    assert run.exit_code == 2 and "--file with columns" in run.stderr


def test_an_evaluation_shows_what_is_wrong(texts, tmp_path):
    data = tmp_path / "data.tsv"
    rows = [("good thing 1", "yes"), ("<b>bad</b>, thing", "no"), ("good thing 2", "no"), ("bad thing", "no")]
    data.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    outputs, report = tmp_path / "outputs.csv", tmp_path / "report"
    asked = ["evaluate", str(texts / "model"), "--data", str(data), "--quiet", "--outputs", str(outputs)]
    run = command(*asked, "--report", report)
    assert run.exit_code == 0 and "Perplexity" not in run.stdout, run.output
    table = list(csv.DictReader(outputs.read_text().splitlines()))
    assert [(row["text"], row["gold"]) for row in table] == rows
    labels = zoo.predict(texts / "model", [text for text, _ in rows])
    assert [row["prediction"] for row in table] == [one.label for one in labels]
    assert [float(row["probability"]) for row in table] == pytest.approx([one.score for one in labels], abs=1e-3)
    wrong = [row for row in table if row["gold"] != row["prediction"]]
    files = {name: list(csv.DictReader((report / f"{name}.csv").read_text().splitlines())) for name in REPORT}
    assert wrong and sorted(map(str, files["errors"])) == sorted(map(str, wrong))
    pairs = Counter((row["gold"], row["prediction"]) for row in table)
    counts = {row["gold \\ predicted"]: row for row in files["confusion"]}
    assert all(int(counts[gold][answer]) == pairs[gold, answer] for gold in ("no", "yes") for answer in ("no", "yes"))
    recall = {row["label"]: float(row["recall"]) for row in files["labels"]}
    assert recall["no"] == pytest.approx(100 * pairs["no", "no"] / 3, abs=0.01)
    page = (report / "report.html").read_text()
    assert f"{len(wrong)} of 4 examples are wrong" in page and "<b>" not in page
    assert "perplexity" not in json.loads(command(*asked, "--json").stdout)


def test_outputs_of_tokens_have_a_probability(words, tmp_path):
    outputs, report = tmp_path / "outputs.jsonl", tmp_path / "report"
    asked = ["evaluate", str(words / "model"), "--quiet", "--outputs", str(outputs), "--report", str(report)]
    assert command(*asked).exit_code == 0
    row = json.loads(outputs.read_text().splitlines()[0])
    assert row["gold"] == "O ANIMAL O O" and 0 < float(row["probability"]) <= 1
    assert "ANIMAL" in (report / "confusion.csv").read_text()
