"""Minimal pairs: scores of sentences against plain loops, and what is counted as right."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import zoo
from zoo.base.errors import ConfigError, DataError, UnknownNameError
from zoo.cli.main import cli
from zoo.data.tokenizers.kinds import TOKENIZERS
from zoo.training.suites import SUITES, MinimalPair, PairScore, SuiteResult, evaluate_suite
from zoo.training.suites.minimal_pairs import METHODS, sentence_scores

TEXTS = ["The cats sleep here.", "The cat sleeps.", "Cats", "The dogs that saw the cat sleep here."]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "dropout": 0.0}


@pytest.fixture(scope="module")
def tokenizer():
    found = TOKENIZERS.get("bpe")(TEXTS * 3, vocab_size=60)
    found.add_special_tokens({"mask_token": "<mask>"})
    return found


def built(variant: str, task: str, tokenizer):
    model = zoo.build(variant, task, vocab_size=len(tokenizer), seed=0, initializer_range=0.5, **SIZES)
    return model.double().eval()


def log_probability(logits: torch.Tensor, id_: int) -> float:
    values = [float(value) for value in logits]
    return values[id_] - max(values) - math.log(sum(math.exp(value - max(values)) for value in values))


@torch.no_grad()
@pytest.mark.parametrize("variant", ["gpt2-style", "llama-style", "qwen3-next-style"])
def test_a_causal_model_scores_each_token_after_those_before_it(variant, tokenizer):
    model = built(variant, "causal-lm", tokenizer)
    for text, found in zip(TEXTS, sentence_scores(model, tokenizer, TEXTS, batch_tokens=20), strict=True):
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        rows = [model(torch.tensor([ids[:end]])).logits[0, -1] for end in range(1, len(ids))]
        expected = sum(log_probability(row, id_) for row, id_ in zip(rows, ids[1:], strict=True))
        assert found == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS[1:])
def test_a_masked_model_scores_each_token_where_it_is_masked(method, tokenizer):
    model = built("bert-style", "masked-lm", tokenizer)
    for text, found in zip(TEXTS, sentence_scores(model, tokenizer, TEXTS, method=method), strict=True):
        encoded = tokenizer(text)
        ids, words, expected = encoded["input_ids"], encoded.word_ids(), 0.0
        for place, id_ in enumerate(ids):
            if id_ == tokenizer.eos_token_id:
                continue
            row = list(ids)
            row[place] = tokenizer.mask_token_id
            for later in range(place + 1, len(ids)):
                if method == METHODS[2] and words[later] == words[place]:
                    row[later] = tokenizer.mask_token_id
            expected += log_probability(model(torch.tensor([row])).logits[0, place], id_)
        assert found == pytest.approx(expected, abs=1e-5)
    assert any(len(set(words)) < len(words) for words in (tokenizer(text).word_ids() for text in TEXTS))


@torch.no_grad()
def test_a_model_of_next_masked_tokens_predicts_one_position_earlier(tokenizer):
    model = built("gpt-bert-style", "masked-lm", tokenizer)
    for text, found in zip(TEXTS, sentence_scores(model, tokenizer, TEXTS), strict=True):
        ids = [tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]
        rows = torch.tensor([ids] * (len(ids) - 2))
        rows[range(len(rows)), range(1, len(ids) - 1)] = tokenizer.mask_token_id
        logits = model(rows).logits
        expected = sum(log_probability(logits[place - 1, place - 1], ids[place]) for place in range(1, len(ids) - 1))
        assert found == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_an_encoder_decoder_scores_by_its_decoder(tokenizer):
    model = built("pre-norm", "seq2seq-lm", tokenizer)
    source = torch.tensor([[tokenizer.mask_token_id, tokenizer.eos_token_id]])
    for text, found in zip(TEXTS, sentence_scores(model, tokenizer, TEXTS), strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        begun = [model.config.decoder_start_token_id, *ids[:-1]]
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([begun])).logits[0]
        assert found == pytest.approx(sum(map(log_probability, logits, ids)), abs=1e-5)


def test_a_pair_of_one_sentence_is_never_right(tmp_path: Path):
    """BLiMP has seven of them."""
    same = json.dumps({"sentence_good": "The cat sat.", "sentence_bad": "The cat sat."})
    (tmp_path / "same.jsonl").write_text(f"{same}\n" * 3)
    found = evaluate_suite("gpt2-style.char-en", data=tmp_path)
    assert (found.overall, found.by("paradigm")["same"].ties) == (0, 3)


def test_equal_scores_are_not_right():
    pair = MinimalPair("a", "b", "p", "q", "r")
    scores = (PairScore(pair, -1.0, -1.0), PairScore(pair, -1.0, -2.0), PairScore(pair, -2.0, -1.0))
    result = SuiteResult("mine", METHODS[0], scores)
    found = result.by("paradigm")["p"]
    assert (found.right, found.pairs, found.ties) == (1, 3, 1) and result.overall == pytest.approx(100 / 3)
    assert found.interval[0] < found.value < found.interval[1]


def test_the_interval_holds_the_true_accuracy():
    """In 95 % of samples, also with few pairs for each paradigm; all of them may be right."""
    draw, truth, held = random.Random(0), [0.5 + 0.03 * number for number in range(15)], 0
    for _ in range(400):
        scores = [
            PairScore(MinimalPair("a", "b", str(number)), float(draw.random() < share), 0.5)
            for number, share in enumerate(truth)
            for _ in range(4)
        ]
        low, high = SuiteResult("mine", METHODS[0], tuple(scores)).interval
        held += low <= 100 * sum(truth) / len(truth) <= high
    assert held / 400 >= 0.93


def test_the_overall_accuracy_is_the_mean_over_paradigms():
    large, small = MinimalPair("a", "b", "large"), MinimalPair("a", "b", "small")
    scores = [PairScore(large, 0.0, -1.0)] * 30 + [PairScore(small, -1.0, 0.0)] * 10
    assert SuiteResult("mine", METHODS[0], tuple(scores)).overall == 50


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2"),
        ('{"sentence_good": "a"}', "line 2"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "two texts"),
    ],
)
def test_a_broken_line_is_named(line, message, tmp_path: Path):
    (tmp_path / "one.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        list(SUITES.get("blimp").pairs(tmp_path))


def test_what_cannot_be_scored_is_refused(tokenizer, tmp_path: Path, monkeypatch):
    with pytest.raises(ConfigError, match="gives no probabilities of sentences"):
        sentence_scores(built("bert-style", "sequence-classification", tokenizer), tokenizer, TEXTS)
    with pytest.raises(ConfigError, match="is scored by log-probability"):
        sentence_scores(built("gpt2-style", "causal-lm", tokenizer), tokenizer, TEXTS, method=METHODS[1])
    with pytest.raises(ConfigError, match="positions"):
        sentence_scores(built("gpt2-style", "causal-lm", tokenizer), tokenizer, ["The cat " * 2000])
    with pytest.raises(UnknownNameError, match="did you mean 'blimp'"):
        evaluate_suite("llama-style.char-en", "blmp")
    with pytest.raises(DataError, match="--data DIR.*supplement_filtered"):
        evaluate_suite("llama-style.char-en", "blimp-supplement")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=str(tmp_path / "blimp")):
        evaluate_suite("llama-style.char-en", "blimp")


def test_a_shipped_model_on_the_command_line(tmp_path: Path):
    rows = [("He is here.", "He are here."), ("They are here.", "They is here."), ("I am here.", "I is here.")]
    lines = (
        json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "be", "field": "syntax"}) for good, bad in rows
    )
    (tmp_path / "be.jsonl").write_text("\n".join(lines))
    words = ["evaluate", "llama-style.char-en", "--suite", "blimp", "--data", str(tmp_path)]
    run = CliRunner().invoke(cli, [*words, "--json"])
    found = json.loads(run.stdout)
    assert (found["overall"]["value"], found["paradigm"]["be"]["pairs"]) == (100.0, 3)
    shown = CliRunner().invoke(cli, [*words, "--limit", "1"])
    assert "mean of 1 paradigms" in shown.stdout and "count as wrong" in shown.stdout
    refused = CliRunner().invoke(cli, [*words, "--task", "translation"])
    assert refused.exit_code == 2 and "--suite takes no --task" in refused.stderr
