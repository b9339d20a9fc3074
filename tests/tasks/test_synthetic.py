"""Synthetic tasks: each rule against its own definition, and no held-out question that was trained on."""

import pytest

from zoo.base.errors import ConfigError, UnknownNameError, UnknownTaskError, UnsupportedTaskError
from zoo.data.tasks import DataError, Predictions, find_task
from zoo.fast.chunked_loss import IGNORED


def recalled(question):
    *pairs, key = question
    return [dict(zip(pairs[::2], pairs[1::2], strict=True))[key]]


def continued(question):
    *before, cue = question
    assert before.count(cue) == 1
    return [before[before.index(cue) + 1]]


def added(question):
    first, second = "".join(question).split("+")
    return list(str(int(first) + int(second)))


RULES = {
    "copy": list,
    "compression": list,
    "reverse": lambda question: question[::-1],
    "sort": lambda question: sorted(question, key=int),
    "addition": added,
    "aligned-addition": lambda asked: list(str(int("".join(asked[:2])) + int("".join(asked[2:]))).rjust(3, "0")),
    "modular-addition": lambda question: [str((int(question[0]) + int(question[1])) % 113)],
    "associative-recall": recalled,
    "induction": continued,
}


@pytest.mark.parametrize("name", RULES)
def test_answers_follow_the_rule(name):
    task = find_task(name, {"train_examples": 200, "heldout_examples": 20})
    splits = task.load(seed=1)
    assert (len(splits.train), len(splits.heldout)) == (200, 20)
    for split in splits:
        for question, answer in zip(split["question"], split["answer"], strict=True):
            assert RULES[name](question.split()) == answer.split()
    assert not set(splits.train["question"]) & set(splits.heldout["question"])
    assert task.load(seed=2).train.to_dict() == splits.train.to_dict()
    assert find_task(name, {"data_seed": 1, "train_examples": 200}).load().train[0] != splits.train[0]


def test_a_small_space_is_shared_out():
    splits = find_task("copy:num_symbols=2,length=3").load()
    assert len(splits.train) + len(splits.heldout) == 2 + 4 + 8 and len(splits.heldout) == 1


@pytest.mark.parametrize("name", ["reverse:decoder_only=true", "induction"])
def test_a_language_model_learns_the_answer_alone(name):
    task = find_task(name, {"train_examples": 50})
    splits = task.load()
    tokenizers = task.train_tokenizers(splits.train, kind="word", min_frequency=1)
    tokenizer = tokenizers.source
    encoded = task.encode(splits.train, tokenizers)
    for question, answer, row in zip(splits.train["question"], splits.train["answer"], encoded, strict=True):
        labels = [label for label in row["labels"] if label != IGNORED]
        ending = ["<eos>"] if task.separated else []
        assert tokenizer.convert_ids_to_tokens(labels) == [*answer.split(), *ending]
        read = tokenizer.convert_ids_to_tokens(row["input_ids"][: len(row["labels"]) - len(labels) + 1])
        assert read == [*question.split(), *(["<bos>"] if task.separated else [])]
        assert row["length"] == len(row["input_ids"]) == len(row["labels"])
    batch = task.collator(tokenizers)([encoded[i] for i in range(8)])
    assert batch["attention_mask"].sum() == sum(encoded["length"][:8]) and batch["labels"] is batch["shift_labels"]


def test_scores():
    task = find_task("copy:heldout_examples=2,train_examples=5")
    examples = task.load().heldout
    first, second = examples["answer"]
    wrong = " ".join(["x", *second.split()[1:], "y"])
    scores = task.score(Predictions(0.0, 1, outputs=[first, wrong]), examples, n_bootstrap=20)
    assert scores["exact_match"].value == 50
    lengths = len(first.split()), len(second.split())
    both = lengths[0] + lengths[1]
    assert scores["symbol_accuracy"].value == pytest.approx(100 * (both - 1) / (both + 1), abs=1e-3)
    decoder = find_task("copy:decoder_only=true")
    ids = [[5, 6, 2], [5, 6, 2], [5, 6, 2]]
    scores = decoder.score(Predictions(0.0, 9, ids=ids, labels=[[5, 6, 2], [5, 7, 2], [5, 6, 9]]), examples)
    expected = pytest.approx([100 / 3, 500 / 6], abs=1e-3)
    assert [scores[one].value for one in ("exact_match", "symbol_accuracy")] == expected


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(DataError, match="makes its own examples"):
        find_task("copy").load(tmp_path)
    for name, error, message in (
        ("associative-recall:length=20", ConfigError, "length=20 is above num_symbols=10"),
        ("copy:min_length=4,length=3", ConfigError, "min_length=4 is above length=3"),
        ("compression:decoder_only=true", ConfigError, "decoder_only must be false"),
        ("compression:min_length=3", ConfigError, "changes nothing in the sequences of 'compression'; leave it out"),
        ("addition:num_symbols=3", ConfigError, "num_symbols=3 was given, which changes nothing in the sequences of"),
        ("modular-addition:length=3", ConfigError, "length=3 was given, which changes nothing in the sequences of"),
        ("induction:cut=true", ConfigError, "cut=True was given, which changes nothing in the sequences of"),
        ("language-modeling:shuffle_buffer=5", ConfigError, "which has no effect without streaming=true"),
        ("asociative_recall", UnknownTaskError, "did you mean 'associative-recall'"),
        ("language-modeling:blocksize=3", UnknownNameError, "did you mean 'block_size'"),
        ("language-modeling:block_size=0", ConfigError, "block_size=0"),
        ("language-modeling:block_size=true", ConfigError, "block_size=True is not valid; it is a number of tokens"),
        ("language-modeling:train_fraction=2", ConfigError, "train_fraction=2"),
        ("language-modeling:streaming=no", ConfigError, "streaming='no' is not valid; it is true or false"),
        ("language-modeling:streaming=true,packing=documents", ConfigError, "streaming is for blocks"),
        (
            "language-modeling:shuffle_buffer=0",
            ConfigError,
            "shuffle_buffer=0 is not valid; it is a number of documents",
        ),
        ("selective-copying:num_copied=2.5", ConfigError, "num_copied=2.5 is not valid; it is a whole number"),
    ):
        with pytest.raises(error, match=message):
            find_task(name)


@pytest.mark.parametrize(
    ("task", "variant", "instead"),
    [
        ("copy", "gpt2-style", "copy:decoder_only=true"),
        ("copy:decoder_only=true", "vanilla@tiny:hidden_size=16", "copy:decoder_only=false"),
        ("addition", "bert-style", None),
        ("compression", "t5-style", None),
    ],
)
def test_a_variant_of_another_kind_is_refused_with_its_own_tasks(task, variant, instead):
    with pytest.raises(UnsupportedTaskError) as caught:
        find_task(task).check_variant(variant)
    assert caught.value.instead == instead
    assert instead is None or str(caught.value).endswith(f"; it can do {instead}")
    for supported in caught.value.supported:
        find_task(supported).check_variant(variant)
