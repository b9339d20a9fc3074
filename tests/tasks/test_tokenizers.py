"""Tokenizers: their ids, their way back, and AutoTokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from zoo.errors import CheckpointError, UnknownNameError
from zoo.tasks import TASKS, TOKENIZERS, load_tokenizers, train_tokenizers

TEXTS = ["Where is the dog?", "The dog is here, Ana.", "I don't know where the dog is.", "Ana, the dog!"] * 3
ENGLISH, PORTUGUESE = TEXTS, ["Onde está o cachorro?", "O cachorro está aqui, Ana."] * 3

BPE = TOKENIZERS.get("bpe")(TEXTS, vocab_size=300)


@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_special_tokens_have_the_ids_of_the_configuration(kind):
    tokenizer = TOKENIZERS.get(kind)(TEXTS)
    assert tokenizer.convert_tokens_to_ids(["<pad>", "<bos>", "<eos>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer("the dog").input_ids[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_known_text_comes_back(kind):
    tokenizer = TOKENIZERS.get(kind)(TEXTS)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_bytes_bring_back_any_text(text):
    ids = BPE(text, add_special_tokens=False).input_ids
    if not any(token in text for token in BPE.all_special_tokens):
        assert BPE.decode(ids) == text


def test_words_are_counted_and_rare_ones_unknown():
    tokenizer = TOKENIZERS.get("word")(["a a a b b c"], min_frequency=2)
    assert tokenizer.convert_ids_to_tokens(tokenizer("a b c").input_ids) == ["a", "b", "<unk>", "<eos>"]
    assert len(TOKENIZERS.get("word")(["a a a b b c"], min_frequency=1, vocab_size=6)) == 6


def test_lower_case():
    for kind in TOKENIZERS:
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
    for text in TEXTS:
        assert plain(text).input_ids == loaded.source(text).input_ids == tokenizers.source(text).input_ids
    assert loaded.target("Onde está?").input_ids == tokenizers.target("Onde está?").input_ids


def test_a_joint_vocabulary_replaces_separate_ones(tmp_path):
    train_tokenizers(ENGLISH, PORTUGUESE, joint=False).save(tmp_path)
    train_tokenizers(ENGLISH, PORTUGUESE, joint=True).save(tmp_path)
    assert load_tokenizers(tmp_path).joint


def test_training_is_deterministic():
    first, second = (train_tokenizers(ENGLISH, PORTUGUESE).source for _ in range(2))
    assert first.get_vocab() == second.get_vocab()


def test_bad_names():
    with pytest.raises(UnknownNameError, match="did you mean 'word'"):
        train_tokenizers(TEXTS, kind="words")
    with pytest.raises(UnknownNameError, match="did you mean 'vocab_size'"):
        train_tokenizers(TEXTS, kind="bpe", vocabsize=100)


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


def test_unknown_task():
    with pytest.raises(UnknownNameError, match="did you mean 'translation'"):
        TASKS.get("translate")
