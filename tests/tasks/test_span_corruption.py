"""Span corruption: spans and what is left make up the block; models that write spans, and are scored by their masks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.base.errors import ConfigError, UnsupportedTaskError
from zoo.data.tasks import find_task
from zoo.data.tasks.blocks import composition
from zoo.data.tasks.span_corruption import SENTINEL
from zoo.data.tokenizers import train_tokenizers
from zoo.training.suites import evaluate_suite
from zoo.training.suites.scoring import METHODS

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def tokenizers(data):
    task = find_task("span-corruption")
    return task.train_tokenizers(task.load(data).train, kind="bpe", vocab_size=280)


def put_together(inputs, labels, sentinels, end):
    """Read both sides as the paper's figure 2 does, one id after another."""
    assert inputs[-1] == labels[-1] == end
    spans, whole = {}, []
    for id_ in labels[:-1]:
        if id_ in sentinels:
            spans[id_] = []
        else:
            spans[list(spans)[-1]].append(id_)
    for id_ in inputs[:-1]:
        whole += spans.pop(id_) if id_ in sentinels else [id_]
    assert not spans
    return whole


@given(
    block_size=st.integers(2, 300),
    density=st.floats(0.001, 0.999),
    mean=st.floats(1.0, 40.0),
    epoch=st.integers(0, 3),
    stride=st.none() | st.integers(1, 400),
)
def test_both_sides_make_up_the_block(data, tokenizers, block_size, density, mean, epoch, stride):
    task = find_task("span-corruption").configured(
        {"block_size": block_size, "noise_density": density, "mean_span_length": mean, "stride": stride}
    )
    missing, spans = task.counts(block_size)
    assert 1 <= spans <= min(missing, block_size - missing)
    if spans > 100:
        return
    blocks = task.encode(task.load(data).train, tokenizers, training=True, seed=1)
    blocks.set_epoch(epoch)
    ids = tokenizers.source.convert_tokens_to_ids([SENTINEL.format(number) for number in range(100)])
    for index in {0, len(blocks) - 1}:
        start, length = blocks.starts[index], blocks.lengths[index]
        missing, spans = task.counts(length)
        inputs, labels = (blocks[index][side].tolist() for side in ("input_ids", "labels"))
        assert put_together(inputs, labels, ids, tokenizers.source.eos_token_id) == list(
            blocks.ids[start : start + length]
        )
        assert [id_ for id_ in inputs if id_ in ids] == ids[:spans]
        assert (len(inputs), len(labels)) == (length - missing + spans + 1, missing + spans + 1)


def test_counts_are_those_of_t5():
    """Of 512 tokens, 15 % are in 26 spans (seqio's and the paper's)."""
    assert find_task("span-corruption").counts(512) == (77, 26)
    assert find_task("span-corruption:noise_density=0.5,mean_span_length=1").counts(4) == (2, 2)


def test_every_division_is_as_likely_as_another():
    generator = np.random.default_rng(0)
    found = Counter(tuple(composition(5, 3, generator)) for _ in range(6000))
    assert sum(found.values()) == 6000 and set(map(sum, found)) == {5}
    assert len(found) == 6 and all(abs(number - 1000) < 150 for number in found.values())


def test_spans_depend_on_seed_epoch_and_block_alone(data, tokenizers):
    task = find_task("span-corruption:block_size=32")
    train = task.load(data).train
    one, same, other = (task.encode(train, tokenizers, training=True, seed=seed) for seed in (0, 0, 1))

    def read(blocks, epoch):
        blocks.set_epoch(epoch)
        return [blocks[index]["labels"].tolist() for index in range(4)]

    assert read(one, 1) == read(same, 1) != read(one, 0)
    assert read(one, 0) != read(other, 0)


@pytest.mark.slow
def test_a_trained_model_writes_spans_and_is_scored_by_all_methods(data, tmp_path):
    zoo.train(
        "t5-style",
        "span-corruption:block_size=24",
        data=data,
        tokenizer={"kind": "bpe", "vocab_size": 280},
        output_dir=tmp_path / "model",
        max_steps=60,
        learning_rate=1e-2,
        progress=False,
        settings={**SIZES, "dropout": 0.0, "attention_dropout": 0.0},
    )
    written = zoo.generate(tmp_path / "model", ["The cats sleep here. The dog that saw <extra_id_0>"])[0].text
    assert written and "extra_id" not in written
    pair = '{"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}'
    (tmp_path / "a.jsonl").write_text(pair)
    for method in (METHODS[0], METHODS[1], METHODS[3]):
        assert len(evaluate_suite(tmp_path / "model", "blimp", data=tmp_path, method=method).scores) == 1


def test_what_cannot_be_used_is_refused(data):
    task = find_task("span-corruption:block_size=64,noise_density=0.5,mean_span_length=1")
    train = task.load(data).train
    plain = train_tokenizers(train["text"], kind="character")
    with pytest.raises(ConfigError, match=r"has 0 sentinels \(<extra_id_0>, .*block_size=64 needs 32"):
        task.encode(train, plain, training=True)
    with pytest.raises(UnsupportedTaskError, match="span-corruption"):
        task.check_variant("gpt2-style")
    for wrong in ("noise_density=1", "mean_span_length=0.5", "block_size=1"):
        with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
            find_task(f"span-corruption:{wrong}")
