"""Masks: the right share, the right kinds, drawn again in every epoch and the same for everyone."""

import numpy as np
import pytest
from datasets import Dataset

from zoo.base.errors import ConfigError
from zoo.data.tasks import find_task, train_tokenizers
from zoo.fast.chunked_loss import IGNORED
from zoo.training import train

TEXT = "".join(f"Line {i}: to be, or not to be?\nThat is {i * i}.\n" for i in range(300))


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT)
    task = find_task("masked-language-modeling:block_size=50")
    splits = task.load(file)
    tokenizers = task.train_tokenizers(splits.train, kind="character")
    return task, splits, tokenizers, task.encode(splits.train, tokenizers, training=True, seed=3)


def everything(blocks, key):
    return np.concatenate([blocks[i][key] for i in range(len(blocks))])


def test_masks_are_those_of_bert(encoded):
    _, splits, tokenizers, blocks = encoded
    text = tokenizers.source.encode("".join(splits.train["text"]), add_special_tokens=False)
    ids, labels = everything(blocks, "input_ids"), everything(blocks, "labels")
    chosen = labels != IGNORED
    assert len(ids) == len(text) and (labels[chosen] == np.array(text)[chosen]).all()
    assert (ids[~chosen] == np.array(text)[~chosen]).all() and chosen.mean() == pytest.approx(0.15, abs=0.01)
    assert (ids[chosen] == tokenizers.source.mask_token_id).mean() == pytest.approx(0.8, abs=0.03)
    assert (ids[chosen] == labels[chosen]).mean() == pytest.approx(0.1, abs=0.03)


def test_masks_depend_on_seed_epoch_and_block_alone(encoded):
    task, splits, tokenizers, blocks = encoded
    first = everything(blocks, "labels")
    assert (everything(blocks, "labels") == first).all()
    blocks.set_epoch(1)
    second = everything(blocks, "labels")
    blocks.set_epoch(0)
    other = everything(task.encode(splits.train, tokenizers, training=True, seed=4), "labels")
    assert (second != first).any() and (other != first).any()


def test_a_shorter_last_block_is_padded(encoded):
    task, _, tokenizers, blocks = encoded
    short = blocks[len(blocks) - 1]
    batch = task.collator(tokenizers)([blocks[0], short])
    assert batch["attention_mask"].sum() == 50 + len(short["labels"]) < 100 and "shift_labels" not in batch


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_a_mask_takes_the_place_of_a_word_with_its_blank(kind):
    task = find_task("masked-language-modeling")
    tokenizer = task.train_tokenizers(Dataset.from_dict({"text": ["a b c a b c"] * 9}), kind=kind).source
    whole, masked = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a b c", "a <mask> c"))
    (place,) = [place for place, id_ in enumerate(masked) if id_ == tokenizer.mask_token_id]
    assert len(masked) == len(whole) and masked[:place] + masked[place + 1 :] == whole[:place] + whole[place + 1 :]


def test_a_tokenizer_must_have_a_mask(encoded):
    task, splits, _, _ = encoded
    with pytest.raises(ConfigError, match="no mask_token"):
        task.encode(splits.train, train_tokenizers([TEXT]))
    with pytest.raises(ConfigError, match="mlm_probability=2"):
        find_task("masked-language-modeling:mlm_probability=2")


def test_masks_are_drawn_again_in_every_epoch_by_workers_that_stay(data):
    options = {"data": data, "num_train_epochs": 2, "tokenizer": "bpe:vocab_size=280", "progress": False}
    options |= {"settings": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "dropout": 0.0}}
    losses = [
        train("bert-style", "masked-language-modeling", **options, **workers).report.train_loss
        for workers in ({}, {"dataloader_num_workers": 1, "dataloader_persistent_workers": True})
    ]
    assert losses[0] == losses[1]
