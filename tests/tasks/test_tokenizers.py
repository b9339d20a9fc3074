"""Tokenizers: their ids, their way back, and AutoTokenizer."""

import inspect
import string

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import d2l_text
from transformers import AutoTokenizer

from zoo.base.errors import CheckpointError, ConfigError, NameSyntaxError, UnknownNameError
from zoo.data.tasks import TASKS, TOKENIZERS, DataError, Splits, find_task, load_tokenizers, train_tokenizers
from zoo.data.tokenizers import leave_open
from zoo.training.record import digest_of_tokenizers

TEXTS = ["Where is the dog?", "The dog is here, Ana.", "I don't know where the dog is.", "Ana, the dog!"] * 3
ENGLISH, PORTUGUESE = TEXTS, ["Onde está o cachorro?", "O cachorro está aqui, Ana."] * 3

ORIGINALS = ("d2l-word", "explicando-character")
OWN = [kind for kind in TOKENIZERS.names() if kind not in ORIGINALS]
BYTE_LEVEL = {kind: TOKENIZERS.get(kind)(TEXTS, vocab_size=300) for kind in ("bpe", "unigram")}


@pytest.mark.parametrize("kind", OWN)
def test_special_tokens_have_the_ids_of_the_configuration(kind):
    tokenizer = TOKENIZERS.get(kind)(TEXTS)
    assert tokenizer.convert_tokens_to_ids(["<pad>", "<bos>", "<eos>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer("the dog").input_ids[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_known_text_comes_back(kind):
    tokenizer = TOKENIZERS.get(kind)(TEXTS)
    for text in TEXTS:
        expected = d2l_text.preprocess(text) if kind == "d2l-word" else text
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == expected


@given(st.text(), st.sampled_from(sorted(BYTE_LEVEL)))
@settings(max_examples=300, deadline=None)
def test_bytes_bring_back_any_text(text, kind):
    tokenizer = BYTE_LEVEL[kind]
    ids = tokenizer(text, add_special_tokens=False).input_ids
    if not any(token in text for token in tokenizer.all_special_tokens):
        assert tokenizer.decode(ids) == text


@given(st.lists(st.text(st.sampled_from("aAbB é!.,?\u00a0\u202f"), min_size=1), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_d2l_words_have_the_ids_of_the_book(texts):
    """The book also counts the nothing between two spaces as a word; the zoo does not."""
    lines = [[word for word in d2l_text.preprocess(text).split(" ") if word] for text in texts]
    vocabulary = d2l_text.vocabulary(lines)
    tokenizer = TOKENIZERS.get("d2l-word")(texts)
    assert tokenizer.get_vocab() == vocabulary
    expected = [[*(vocabulary.get(word, d2l_text.UNK) for word in line), d2l_text.EOS] for line in lines]
    assert tokenizer(texts).input_ids == expected


def test_explicando_characters_have_the_ids_of_the_tutorial():
    """<pad> 0, <bos> 1, <eos> 2, and character number i of the vocabulary 3 + i."""
    tokenizer = TOKENIZERS.get("explicando-character")([], characters=string.printable)
    assert len(tokenizer) == len(string.printable) + 3
    assert tokenizer("a\n!").input_ids == [1, *(3 + string.printable.index(c) for c in "a\n!"), 2]
    padded = tokenizer(["abc", "a"], padding=True)
    assert padded.input_ids[1] == [1, 13, 2, 0, 0]
    assert TOKENIZERS.get("explicando-character")(["ba", "ca"])("abc").input_ids == [1, 4, 3, 5, 2]


def test_a_character_that_a_vocabulary_lacks_is_named():
    splits = TASKS.get("translation").load()
    few = splits.heldout.select(range(4))
    tokenizers = train_tokenizers(["abc"], ["abc"], kind="explicando-character")
    with pytest.raises(DataError, match="no id for .*'T'"):
        TASKS.get("translation").encode(few, tokenizers)


def test_words_are_counted_and_rare_ones_unknown():
    tokenizer = TOKENIZERS.get("word")(["a a a b b c"], min_frequency=2)
    assert tokenizer.convert_ids_to_tokens(tokenizer("a b c").input_ids) == ["a", "b", "<unk>", "<eos>"]
    assert len(TOKENIZERS.get("word")(["a a a b b c"], min_frequency=1, vocab_size=6)) == 6


SMALLEST = [("bpe", 260), ("unigram", 260), ("word", 5), ("character", 5), ("d2l-word", 5)]


@pytest.mark.parametrize(("kind", "least"), SMALLEST)
def test_a_vocabulary_has_room_for_special_tokens_and_bytes(kind, least):
    assert len(TOKENIZERS.get(kind)(TEXTS, vocab_size=least)) >= 5
    with pytest.raises(ConfigError, match=f"vocab_size={least - 1} was given .*; valid: {least} and more"):
        TOKENIZERS.get(kind)(TEXTS, vocab_size=least - 1)
    with pytest.raises(ConfigError, match="vocab_size='many' (was given|is not valid)"):
        train_tokenizers(TEXTS, kind=f"{kind}:vocab_size=many")


def test_lower_case():
    for kind in OWN:
        tokenizer = TOKENIZERS.get(kind)(TEXTS, lower_case=True)
        assert tokenizer("THE DOG").input_ids == tokenizer("the dog").input_ids


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_saved_tokenizers_are_loaded_by_auto_tokenizer(tmp_path, kind, joint):
    tokenizers = train_tokenizers(ENGLISH, PORTUGUESE, kind=kind, joint=joint)
    tokenizers.save(tmp_path)
    loaded = load_tokenizers(tmp_path)
    assert loaded.joint == joint
    plain = AutoTokenizer.from_pretrained(tmp_path)
    assert type(plain) is type(loaded.source) and plain.init_kwargs == loaded.source.init_kwargs
    for text in TEXTS:
        assert plain(text).input_ids == loaded.source(text).input_ids == tokenizers.source(text).input_ids
    assert loaded.target("Onde está?").input_ids == tokenizers.target("Onde está?").input_ids


def test_a_joint_vocabulary_replaces_separate_ones(tmp_path):
    train_tokenizers(ENGLISH, PORTUGUESE, joint=False).save(tmp_path)
    train_tokenizers(ENGLISH, PORTUGUESE, joint=True).save(tmp_path)
    assert load_tokenizers(tmp_path).joint


def test_the_longest_text_of_a_saved_tokenizer_is_that_of_its_own_model(tmp_path):
    tokenizers = train_tokenizers(ENGLISH)
    for length in (64, 512):
        tokenizers.save(tmp_path, length)
        assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == length


def test_training_is_deterministic():
    first, second = (train_tokenizers(ENGLISH, PORTUGUESE).source for _ in range(2))
    assert first.get_vocab() == second.get_vocab()


def test_a_digest_depends_on_no_earlier_call():
    tokenizers = train_tokenizers(TEXTS, kind="word")
    before = digest_of_tokenizers(tokenizers)
    tokenizers.source(TEXTS, padding=True, truncation=True, max_length=3)
    assert digest_of_tokenizers(tokenizers) == before


def test_bad_names():
    with pytest.raises(UnknownNameError, match="did you mean 'word'"):
        train_tokenizers(TEXTS, kind="words")
    with pytest.raises(NameSyntaxError, match="cannot read the tokenizer 'bpe@tiny'; valid: NAME"):
        train_tokenizers(TEXTS, kind="bpe@tiny")
    with pytest.raises(UnknownNameError, match="did you mean 'vocab_size'"):
        train_tokenizers(TEXTS, kind="bpe:vocab_sice=512")
    with pytest.raises(UnknownNameError, match="did you mean 'vocab_size'"):
        train_tokenizers(TEXTS, kind="bpe", vocabsize=100)
    for option, valid in (("lower_case=no", "true or"), ("joint=no", "true or false"), ("min_frequency=1.5", "a wh")):
        with pytest.raises(ConfigError, match=f"is not valid; it is {valid}"):
            train_tokenizers(TEXTS, kind=f"word:{option}")
    for wrong in ("bpe:min_frequency=-1", "explicando-character:characters=5"):
        with pytest.raises(ConfigError, match=rf"{wrong.partition(':')[2]} was given for a tokenizer"):
            train_tokenizers(TEXTS, kind=wrong)


@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_a_name_carries_every_option_of_its_kind(kind):
    for name, option in inspect.signature(TOKENIZERS.get(kind)).parameters.items():
        if option.kind is option.KEYWORD_ONLY:
            carried = train_tokenizers(TEXTS, kind=f"{kind}:{name}={option.default!r},joint=false")
            assert carried.made_by == {"kind": kind, "joint": False, name: option.default}
            assert set(carried.source.get_vocab()) == set(train_tokenizers(TEXTS, kind=kind).source.get_vocab())


def test_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_tokenizers(tmp_path)


def test_translation_pads_labels_so_that_they_do_not_count():
    task = TASKS.get("translation")
    splits = task.load()
    few = splits.heldout.select(range(8))
    tokenizers = task.train_tokenizers(few, vocab_size=300, joint=False)
    encoded = task.encode(few, tokenizers)
    batch = task.collator(tokenizers)([{k: v for k, v in row.items() if k != "length"} for row in encoded])
    real = batch["attention_mask"].sum() + (batch["labels"] != -100).sum()
    assert real == sum(encoded["length"])
    assert batch["labels"].max() < task.model_settings(tokenizers)["decoder_vocab_size"]
    assert (batch["labels"] != tokenizers.target.pad_token_id).all()


@pytest.mark.parametrize("name", ["translation", "copy", "copy:decoder_only=true"])
def test_what_is_written_has_an_end_whether_or_not_the_tokenizer_puts_one(name):
    task, examples = find_task(name), Dataset.from_dict({"a": ["one", "two"], "b": ["um", "dois"]})
    tokenizers = task.train_tokenizers(examples, vocab_size=300)
    ended = task.encode(examples, tokenizers)["labels"][:]
    leave_open(tokenizers.source)
    assert task.encode(examples, tokenizers)["labels"][:] == ended
    assert all(row[-1] == tokenizers.target.eos_token_id for row in ended)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("translation", {"a": ["one", "one two three"], "b": ["um dois", "um"]}),
        ("text-classification", {"text": ["one", "one two three"], "label": ["x", "y"]}),
        ("token-classification", {"tokens": [["one"], ["one", "two"]], "tags": [["x"], ["y", "x"]]}),
    ],
)
def test_batches_are_the_same_whichever_side_a_tokenizer_pads(name, rows):
    task, examples = TASKS.get(name), Dataset.from_dict(rows)
    task = task.fitted(Splits(examples, examples)) if name != "translation" else task
    tokenizers = task.train_tokenizers(examples, kind="word", min_frequency=1)
    encoded = [{k: v for k, v in row.items() if k != "length"} for row in task.encode(examples, tokenizers)]
    right = task.collator(tokenizers)([dict(row) for row in encoded])
    tokenizers.source.padding_side = "left"
    left = task.collator(tokenizers)([dict(row) for row in encoded])
    assert tokenizers.source.padding_side == "left"  # as its file has it
    assert all(torch.equal(left[key], right[key]) for key in right)


def test_unknown_task():
    with pytest.raises(UnknownNameError, match="did you mean 'translation'"):
        TASKS.get("translate")
