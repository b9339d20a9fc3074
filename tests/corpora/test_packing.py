"""Packed documents: every token once, none sees another document, and few places are padding."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from corpora.recorded import SETTINGS
from transformers import BloomForCausalLM, GPT2Config, GPT2LMHeadModel, OPTForCausalLM

import zoo
from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.data.corpora.preparing import prepare
from zoo.data.tasks import find_task, packing
from zoo.data.tasks.blocks import BlockCollator
from zoo.data.tasks.packing import PackedDocuments, best_fit, ends_in, pack
from zoo.data.tokenizers import train_tokenizers
from zoo.training import train

DOCUMENTS = [f"Story {n} of {n * n} words, {'very ' * (n % 9)}short." for n in range(90)]


def random_documents(number: int, longest: int) -> np.ndarray:
    """Ids from 3 on, with a 2 at the end of each document."""
    random = np.random.default_rng(0)
    parts = [[*random.integers(3, 99, random.integers(0, longest)), 2] for _ in range(number)]
    return np.concatenate(parts)


@pytest.mark.parametrize("window", [1, 7, 1 << 16])
@pytest.mark.parametrize("row_size", [1, 5, 16, 64])
def test_every_token_is_predicted_once_from_its_own_document(monkeypatch, window, row_size):
    monkeypatch.setattr(packing, "WINDOW", window)
    ids = random_documents(60, 40)
    rows = PackedDocuments(ids, row_size, pack([ends_in(ids, 2)], row_size), 0)
    seen = []
    for row in (rows[number] for number in range(len(rows))):
        assert {len(values) for values in row.values()} == {row_size}
        starts = [*np.flatnonzero(row["position_ids"] == 0), row_size]
        for start, stop in itertools.pairwise(starts):
            inputs, labels = row["input_ids"][start:stop], row["labels"][start:stop]
            if labels[0] == -100:
                assert (labels == -100).all() and (inputs == 0).all()
                continue
            assert (inputs[1:] == labels[:-1]).all() and 2 not in labels[:-1]
            seen += labels.tolist()
    assert sorted(seen) == sorted(ids[1:].tolist())


def test_few_places_are_padding():
    lengths = np.random.default_rng(0).integers(1, 512, 5000)
    placed, rows = best_fit(lengths, 1024)
    used = np.bincount(placed, lengths, minlength=rows)
    assert used.max() <= 1024 and used.mean() > 0.995 * 1024


@pytest.mark.parametrize("name", ["gpt2-style@tiny", "llama-style@tiny", "qwen3-next-style@tiny"])
def test_a_packed_row_has_the_loss_of_its_documents(name):
    model = zoo.build(name, "causal-lm", dropout=0.0).double().eval()
    ids = random_documents(6, 9)
    ends = ends_in(ids, 2)
    rows = PackedDocuments(ids, 24, pack([ends], 24), 0)
    batch = BlockCollator(0)([rows[number] for number in range(len(rows))])
    packed = model(**batch).loss.item() * int(batch["labels"].ne(-100).sum())
    alone = 0.0
    for start, stop in zip([1, *ends], ends, strict=False):
        piece = torch.from_numpy(ids[start - 1 : stop])[None]
        one = model(input_ids=piece[:, :-1], labels=piece[:, 1:], shift_labels=piece[:, 1:])
        alone += one.loss.item() * (stop - start)
    assert packed == pytest.approx(alone, rel=1e-6)


def test_packed_shards_are_those_of_the_texts_and_packed_once(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    tokenizers = train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)
    prepare(tmp_path / "a.jsonl", tokenizers, tmp_path / "out", shard_bytes=900, progress=False)
    task = find_task("language-modeling:block_size=64,packing=documents")
    texts = task.load(tmp_path / "out").train
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        read_only = task.encode(texts, tokenizers, training=True)
    assert not (tmp_path / "out" / "packed").exists()
    rows = task.encode(texts, tokenizers, training=True)
    monkeypatch.setattr(packing, "pack", None)
    again = task.encode(texts, tokenizers, training=True)
    monkeypatch.undo()
    whole = texts.row(tokenizers)
    ids = whole[0 : len(whole)]
    expected = PackedDocuments(ids, 64, pack(whole.document_ends(), 64), 0)
    for made in (read_only, rows, again):
        assert [row["input_ids"].tolist() for row in made] == [row["input_ids"].tolist() for row in expected]
    parts = [part.row(tokenizers) for part in task.set_aside(texts)]
    ends = [np.concatenate(list(part.document_ends())).tolist() for part in parts]
    assert [*ends[0], *(len(parts[0]) + np.array(ends[1]))] == ends_in(ids, tokenizers.source.eos_token_id).tolist()


def test_a_model_is_trained_on_packed_documents(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    task, data = "language-modeling:block_size=64,packing=documents", Path(tmp_path / "a.jsonl")
    options = {"tokenizer": "bpe:vocab_size=300", "settings": SETTINGS, "num_train_epochs": 1, "progress": False}
    result = train("llama-style", task, data=data, **options)
    score = result.report.scores["perplexity"]
    assert score.signature.endswith("|block:64|packing:documents")
    tokenizer = result.tokenizers.source
    texts = find_task("language-modeling").load(tmp_path / "a.jsonl").train["text"]
    tokens = sum(len(tokenizer.encode(text, add_special_tokens=False)) + 1 for text in texts)
    assert result.report.train_tokens == tokens - 2  # the first is no label, and the last text has no end


def test_models_of_transformers_that_separate_no_documents_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    tokenizers = train_tokenizers(DOCUMENTS, kind="bpe", vocab_size=300)
    task = "language-modeling:block_size=32,packing=documents"
    given = {"data": tmp_path / "a.jsonl", "tokenizer": tokenizers}
    sizes = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for kind in (BloomForCausalLM, OPTForCausalLM):  # which read no positions, and by the mask alone
        model = kind(kind.config_class(**sizes, ffn_dim=16, word_embed_proj_dim=16))
        for run in (train, zoo.evaluate):
            with pytest.raises(ConfigError, match=f"{kind.__name__} does not separate documents in a row"):
                run(model, task, **given)
    result = train(GPT2LMHeadModel(GPT2Config(**sizes)), task, **given, max_steps=1, use_cpu=True, progress=False)
    dataset, loss = find_task(task).encode(find_task(task).load(tmp_path / "a.jsonl").heldout, tokenizers), 0.0
    for row in map(dataset.__getitem__, range(len(dataset))):
        for places in np.split(np.arange(32), np.flatnonzero(row["position_ids"] == 0)[1:]):
            ids, labels = (torch.from_numpy(row[name][places]) for name in ("input_ids", "labels"))
            logits = result.model(input_ids=ids[None]).logits[0].detach()
            loss += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
    assert result.report.heldout_loss == pytest.approx(loss / dataset.num_tokens, rel=1e-5)


def test_packing_that_is_not_valid_is_refused():
    with pytest.raises(InvalidChoiceError, match="packing"):
        find_task("language-modeling:packing=document")
    with pytest.raises(ConfigError, match="stride=4 is for blocks"):
        find_task("language-modeling:packing=documents,stride=4")
