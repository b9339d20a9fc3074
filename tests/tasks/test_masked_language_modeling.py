"""Masks, and masked next-token prediction mixed with causal language modelling."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import zoo
from zoo.base.errors import ConfigError
from zoo.data.tasks import find_task, train_tokenizers
from zoo.fast.chunked_loss import IGNORED
from zoo.training import train
from zoo.training.suites import evaluate_suite

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


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_blocks_have_the_share_and_every_label_is_the_next_token(share, data):
    task = find_task(f"masked-next-token:block_size=8,causal_share={share}")
    splits = task.load(data)
    tokenizers = task.train_tokenizers(splits.train, kind="bpe", vocab_size=280)
    blocks = task.encode(splits.train, tokenizers, training=True)
    row, mask = blocks.ids, tokenizers.source.mask_token_id
    for epoch in (0, 1):
        blocks.set_epoch(epoch)
        causal = [block["causal_rows"] for block in map(blocks.__getitem__, range(len(blocks)))]
        assert sum(causal) == pytest.approx(share * len(blocks), abs=2)
        for number, is_causal in enumerate(causal):
            block, start = blocks[number], blocks.masked.starts[number]
            length = blocks.lengths[number]
            true = row[start : start + length + 1]
            labelled = block["labels"] != -100
            assert len(block["input_ids"]) == length > 0 and (block["labels"] == true[1:])[labelled].all()
            assert labelled.all() == is_causal or length < 8
            if is_causal:
                assert (block["input_ids"] == true[:-1]).all() and mask not in block["input_ids"]
            else:
                seen = block["input_ids"][1:] == true[1:-1]
                assert seen[~labelled[:-1]].all()


def trained(data, folder, **options):
    options |= {"tokenizer": {"kind": "bpe", "vocab_size": 280}, "data": data, "output_dir": folder, "progress": False}
    settings = {**SIZES, "dropout": 0.0, "attention_dropout": 0.0}
    return zoo.train("gpt-bert-style", "masked-next-token:block_size=16,causal_share=0.5", settings=settings, **options)


@pytest.mark.slow
def test_a_trained_model_is_causal_and_masked(data, tmp_path: Path):
    result = trained(data, tmp_path / "model", max_steps=6)
    assert result.report.scores["perplexity"].value > 1
    models = [auto.from_pretrained(tmp_path / "model") for auto in (AutoModelForCausalLM, AutoModelForMaskedLM)]
    assert [model.config.is_decoder for model in models] == [True, False]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("The cats")["input_ids"][0] == tokenizer.bos_token_id == tokenizer.eos_token_id
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "a.jsonl").write_text('{"sentence_good": "The cats ran.", "sentence_bad": "The cats runs."}')
    for model in models:
        assert len(evaluate_suite(model, "blimp", data=tmp_path / "suite", tokenizer=tokenizer).scores) == 1
    assert zoo.generate(tmp_path / "model", ["The cats"], max_new_tokens=2)[0].text is not None
    for method, model in zip(("log-probability", "pseudo-log-likelihood"), models, strict=True):
        found = evaluate_suite(tmp_path / "model", "blimp", data=tmp_path / "suite", method=method)
        alone = evaluate_suite(model, "blimp", data=tmp_path / "suite", tokenizer=tokenizer)
        assert found.method == method and found.scores == alone.scores


def test_a_loss_depends_neither_on_accumulation_nor_on_the_batches_of_an_evaluation(data, tmp_path: Path):
    """Rows of both kinds count alike, though masked ones have few labels, and are alone in batches of one."""
    found = {}
    for size in (1, 16):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size}
        options |= {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0}
        result = trained(data, tmp_path / str(size), max_steps=2, **options)
        found[size] = torch.cat([weight.detach().flatten() for weight in result.model.parameters()])
    torch.testing.assert_close(found[1], found[16], rtol=0, atol=2e-5)
    losses = [zoo.evaluate(tmp_path / "16", batch_size=size).loss for size in (1, 64)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_other_variants_are_refused(data):
    tokenizer = find_task("masked-next-token").train_tokenizers({"text": ["The cats"]}, kind="bpe", vocab_size=280)
    with pytest.raises(ConfigError, match="masked_next_token=true"):
        find_task("masked-next-token").check_variant("bert-style")
    with pytest.raises(ConfigError, match="one position earlier .* 'masked-next-token' suits it"):
        find_task("masked-language-modeling").check_variant("gpt-bert-style")
    for name, task in (("gpt-bert-style", "masked-language-modeling"), ("bert-style", "masked-next-token")):
        with pytest.raises(ConfigError, match="predicts a? ?masked tokens? "):
            zoo.evaluate(zoo.build(f"{name}@tiny", "masked-lm"), task, data=data, tokenizer=tokenizer.source)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        find_task("masked-next-token:causal_share=2")
