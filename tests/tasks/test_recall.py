"""Tasks that ask inside a sequence: each rule against its own definition, and what a model learns of it."""

import pytest

from zoo.base.errors import ConfigError
from zoo.data.tasks import DataError, find_task
from zoo.fast.chunked_loss import IGNORED

SMALL = {"train_examples": 200, "heldout_examples": 40}
OPTIONS = {
    "multi-query-recall": ["", ":num_symbols=20,length=24,num_pairs=5"],
    "in-context-recall": [":length=40", ":length=40,noise=0.3", ":length=60,motif=3", ":length=60,motif=2,noise=0.2"],
    "selective-copying": ["", ":length=9,num_copied=4"],
    "memorization": ["", ":num_symbols=10,length=9"],
}
TASKS = [f"{name}{options}" for name, all_of in OPTIONS.items() for options in all_of]


def asked(sequence, answers):
    """What is asked where, as (place, symbol)."""
    return [(place, symbol) for place, symbol in enumerate(answers) if symbol != "."]


def rows(task, part="train"):
    split = getattr(find_task(task, SMALL).load(), part)
    return [(row["question"].split(), row["answer"].split()) for row in split]


@pytest.mark.parametrize("task", TASKS)
def test_sequences_and_answers_are_equally_long_and_ask_something(task):
    made = rows(task)
    assert len(made) == 200 and all(len(sequence) == len(answers) for sequence, answers in made)
    assert sum(bool(asked(*row)) for row in made) > 180
    seen = {" ".join(sequence) for sequence, _ in made}
    assert not seen & {" ".join(sequence) for sequence, _ in rows(task, "heldout")}


@pytest.mark.parametrize("task", TASKS[:2])
def test_every_key_asks_once_for_the_value_after_it(task):
    pairs = find_task(task).num_pairs
    for sequence, answers in rows(task):
        values = dict(zip(sequence[: 2 * pairs : 2], sequence[1 : 2 * pairs : 2], strict=True))
        found = asked(sequence, answers)
        assert sorted(sequence[place] for place, _ in found) == sorted(values)
        assert all(symbol == values[sequence[place]] and place >= 2 * pairs for place, symbol in found)


@pytest.mark.parametrize("task", TASKS[2:6])
def test_a_key_that_was_there_asks_for_its_value(task):
    motif = find_task(task).motif
    for sequence, answers in rows(task):
        meant = [place for place, symbol in enumerate(sequence) if not symbol.startswith("n")]
        values, expected = {}, ["."] * len(sequence)
        for start in range(0, len(meant), 2 * motif):
            places = meant[start : start + 2 * motif]
            key = tuple(sequence[place] for place in places[:motif])
            value = [sequence[place] for place in places[motif:]]
            if key in values and len(key) == motif:
                for place, symbol in zip(places[motif - 1 :], values[key], strict=False):
                    expected[place] = symbol
                assert value == values[key][: len(value)]
            values.setdefault(key, value)
        assert answers == expected


@pytest.mark.parametrize("task", ["in-context-recall:noise=0.2", "in-context-recall:noise=0.5,motif=2"])
def test_noise_has_the_share_that_is_documented(task):
    noise, motif = find_task(task).noise, find_task(task).motif
    symbols = [symbol for sequence, _ in rows(task) for symbol in sequence]
    share = sum(symbol.startswith("n") for symbol in symbols) / len(symbols)
    assert share == pytest.approx(noise / (noise + 2 * motif * (1 - noise)), rel=0.05)


@pytest.mark.parametrize("task", TASKS[6:8])
def test_what_is_no_blank_is_copied_in_order(task):
    for sequence, answers in rows(task):
        copied = [symbol for symbol in sequence if symbol not in ("blank", "copy")]
        assert [symbol for _, symbol in asked(sequence, answers)] == copied
        assert all(sequence[place] == "copy" for place, _ in asked(sequence, answers))


@pytest.mark.parametrize("task", TASKS[8:])
def test_a_key_has_one_value_everywhere(task):
    values = {}
    for sequence, answers in [*rows(task), *rows(task, "heldout")]:
        for place, symbol in asked(sequence, answers):
            assert values.setdefault(sequence[place - 1], symbol) == symbol


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_at_questions(task):
    made = find_task(task, {"train_examples": 20})
    splits = made.load()
    tokenizers = made.train_tokenizers(splits.train, kind="word", min_frequency=1)
    for row, encoded in zip(splits.train, made.encode(splits.train, tokenizers), strict=True):
        symbols = tokenizers.source.convert_ids_to_tokens(encoded["input_ids"])
        assert symbols == row["question"].split()
        for label, symbol in zip(encoded["labels"], row["answer"].split(), strict=True):
            assert (label == IGNORED) if symbol == "." else tokenizers.source.convert_ids_to_tokens(label) == symbol


def test_training_may_ask_for_every_symbol_and_what_is_held_out_does_not():
    made = find_task("in-context-recall:train_everywhere=true,length=40,noise=0.3", {"train_examples": 20})
    splits = made.load()
    tokenizers = made.train_tokenizers(splits.train, kind="word", min_frequency=1)
    for row in made.encode(splits.train, tokenizers, training=True):
        assert row["labels"] == [*row["input_ids"][1:], IGNORED] and len(row["labels"]) == row["length"] == 40
    asked_alone = find_task("in-context-recall:length=40,noise=0.3", {"train_examples": 20})
    assert made.load().heldout["answer"] == asked_alone.load().heldout["answer"]
    expected = asked_alone.encode(splits.heldout, tokenizers)["labels"]
    assert made.encode(splits.heldout, tokenizers)["labels"] == expected
    assert asked_alone.encode(splits.heldout, tokenizers, training=True)["labels"] == expected


def test_a_tokenizer_that_cuts_symbols_is_refused():
    made = find_task("memorization", {"train_examples": 20})
    splits = made.load()
    with pytest.raises(DataError, match="needs a token a symbol"):
        made.encode(splits.train, made.train_tokenizers(splits.train, kind="character"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("multi-query-recall:num_pairs=40", "above half of num_symbols=64"),
        ("multi-query-recall:length=8", "length=8 is too short"),
        ("multi-query-recall:num_pairs=-1", "num_pairs=-1 is not valid"),
        ("multi-query-recall:power=abc", "power='abc' is not valid"),
        ("multi-query-recall:power=nan", "power='nan' is not valid"),
        ("selective-copying:num_copied=-1", "num_copied=-1 is not valid"),
        ("in-context-recall:num_symbols=1", "num_symbols=1 is not valid"),
        ("in-context-recall:noise=1", "noise=1 is not valid"),
        ("in-context-recall:motif=0", "motif=0 is not valid"),
        ("selective-copying:length=20", "below twice num_copied=16"),
        ("memorization:decoder_only=false", "decoder_only must be true"),
    ],
)
def test_what_cannot_be_is_refused(task, message):
    with pytest.raises(ConfigError, match=message):
        find_task(task)


@pytest.mark.parametrize("name", OPTIONS)
def test_they_are_for_causal_models_alone(name):
    assert find_task(name).model_tasks == (find_task(name).model_task,) == ("causal-lm",)
