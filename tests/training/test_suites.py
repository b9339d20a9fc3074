"""Minimal pairs: scores of sentences against plain loops, and what is counted as right."""

import json
import math
import os
import random
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from preloaded import run_python
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import zoo
from zoo.base.errors import ConfigError, DataError, InputError, UnknownNameError
from zoo.cli.main import cli
from zoo.data.tokenizers.kinds import TOKENIZERS
from zoo.training.suites import SUITES, Choice, ItemScore, MinimalPair, Option, SuiteResult, evaluate_suite
from zoo.training.suites.results import Accuracy
from zoo.training.suites.scoring import METHODS, option_scores

MODEL = "llama-style.char-en"
TEXTS = ["The cats sleep here.", "The cat sleeps.", "Cats", "The dogs that saw the cat sleep here."]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "dropout": 0.0}


@pytest.fixture(scope="module")
def tokenizer():
    found = TOKENIZERS.get("bpe")(TEXTS * 3, vocab_size=280)
    found.add_special_tokens({"mask_token": "<mask>"})
    return found


def sentence_scores(model, tokenizer, texts, **options):
    return option_scores(model, tokenizer, [Option(text) for text in texts], **options)


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
@pytest.mark.parametrize("method", METHODS[1:3])
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


PREDICTORS = [("gpt2-style", "causal-lm"), ("bert-style", "masked-lm"), ("gpt-bert-style", "masked-lm")]
PREFIXED = [Option(" sleeps.", "The cat"), Option("sleep here.", "The cats", " "), Option("ats", "C")]


@torch.no_grad()
@pytest.mark.parametrize(("variant", "task"), PREDICTORS)
def test_only_the_completion_counts(variant, task, tokenizer):
    """A token that ends after the completion's first character is part of it."""
    model = built(variant, task, tokenizer)
    for option, found in zip(PREFIXED, option_scores(model, tokenizer, PREFIXED), strict=True):
        encoded = tokenizer(option.text, add_special_tokens=False, return_offsets_mapping=True)
        scored = [place for place, (_, end) in enumerate(encoded["offset_mapping"]) if end > option.start]
        ids, expected = [tokenizer.bos_token_id, *encoded["input_ids"]], 0.0
        for place in scored:
            row = list(ids) if task == "causal-lm" else [*ids[1:], tokenizer.eos_token_id]
            predicted = place
            if task == "masked-lm":
                row[place] = tokenizer.mask_token_id
            if variant == "gpt-bert-style":
                row = [ids[0], *row]
            expected += log_probability(model(torch.tensor([row])).logits[0, predicted], ids[place + 1])
        assert 0 < len(scored) < len(ids) and found == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_an_encoder_decoder_completes_after_a_mask(tokenizer):
    model = built("pre-norm", "seq2seq-lm", tokenizer)
    bos, mask, eos = tokenizer.bos_token_id, tokenizer.mask_token_id, tokenizer.eos_token_id
    for option, found in zip(PREFIXED, option_scores(model, tokenizer, PREFIXED, method=METHODS[3]), strict=True):
        start, ids = tokenizer([option.prefix, option.completion], add_special_tokens=False)["input_ids"]
        source, begun = torch.tensor([[*start, mask, eos]]), torch.tensor([[bos, mask, *ids[:-1]]])
        logits = model(input_ids=source, decoder_input_ids=begun).logits[0, 1:]
        assert found == pytest.approx(sum(map(log_probability, logits, ids)), abs=1e-5)


@torch.no_grad()
def test_an_encoder_decoder_fills_masks(tokenizer):
    model = built("pre-norm", "seq2seq-lm", tokenizer)
    begun = torch.tensor([[tokenizer.bos_token_id, tokenizer.mask_token_id]])
    for text, found in zip(TEXTS, sentence_scores(model, tokenizer, TEXTS, method=METHODS[1]), strict=True):
        ids, expected = tokenizer(text)["input_ids"], 0.0
        for place, id_ in enumerate(ids[:-1]):
            source = torch.tensor([ids])
            source[0, place] = tokenizer.mask_token_id
            expected += log_probability(model(input_ids=source, decoder_input_ids=begun).logits[0, -1], id_)
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_pair_of_one_sentence_is_never_right(tmp_path: Path):
    """BLiMP has seven of them."""
    same = json.dumps({"sentence_good": "The cat sat.", "sentence_bad": "The cat sat."})
    (tmp_path / "same.jsonl").write_text(f"{same}\n" * 3)
    found = evaluate_suite("gpt2-style.char-en", data=tmp_path)
    assert (found.overall, found.by("paradigm")["same"].ties) == (0, 3)


def test_equal_scores_are_not_right():
    pair = MinimalPair("a", "b", "p", "q", "r")
    scores = tuple(ItemScore(pair, values) for values in ((-1.0, -1.0), (-1.0, -2.0), (-2.0, -1.0)))
    result = SuiteResult("mine", METHODS[0], scores)
    found = result.by("paradigm")["p"]
    assert (found.right, found.items, found.ties) == (1, 3, 1) and result.overall == pytest.approx(100 / 3)
    assert found.interval[0] < found.value < found.interval[1]


def test_the_interval_holds_the_true_accuracy():
    """In 95 % of samples, also with few pairs for each paradigm; all of them may be right."""
    draw, truth, held = random.Random(0), [0.5 + 0.03 * number for number in range(15)], 0
    for _ in range(400):
        scores = [
            ItemScore(MinimalPair("a", "b", str(number)), (float(draw.random() < share), 0.5))
            for number, share in enumerate(truth)
            for _ in range(4)
        ]
        low, high = SuiteResult("mine", METHODS[0], tuple(scores)).interval
        held += low <= 100 * sum(truth) / len(truth) <= high
    assert held / 400 >= 0.93
    for end in Accuracy(right=3, items=4, ties=0).interval:  # Wilson 1927: where a test of the share would be at 5 %
        assert abs(0.75 - end / 100) == pytest.approx(1.959964 * math.sqrt(end / 100 * (1 - end / 100) / 4), rel=1e-6)


def test_the_overall_accuracy_is_the_mean_over_paradigms():
    large, small = MinimalPair("a", "b", "large"), MinimalPair("a", "b", "small")
    scores = [ItemScore(large, (0.0, -1.0))] * 30 + [ItemScore(small, (-1.0, 0.0))] * 10
    assert SuiteResult("mine", METHODS[0], tuple(scores)).overall == 50


def test_groups_weigh_alike_where_a_suite_has_it_so():
    kinds = [("a", "x", True), ("b", "x", False), ("c", "y", True)]
    items = [(Choice((Option("a"), Option("b")), name, group), right) for name, group, right in kinds]
    scores = tuple(ItemScore(item, (float(right), 0.5)) for item, right in items)
    assert SuiteResult("mine", METHODS[0], scores).overall == pytest.approx(200 / 3)
    assert SuiteResult("mine", METHODS[0], scores, average="phenomenon").overall == pytest.approx(75)


def test_preferences_are_correlated_with_those_of_people():
    people, model = [0.1, 0.4, 0.4, 0.9, 0.7, 0.2], [-1.0, 0.0, 2.0, 5.0, 1.0, -3.0]
    scores = tuple(
        ItemScore(Choice((Option("a"), Option("b")), "w", preference=share), (value, 0.0))
        for share, value in zip(people, model, strict=True)
    )
    result = SuiteResult("mine", METHODS[0], scores, measure="correlation")
    assert result.overall == pytest.approx(spearman(people, model)) and scores[2].preference == pytest.approx(
        math.exp(2) / (math.exp(2) + 1)
    )
    low, high = result.interval
    assert -1 < low < result.overall < high < 1
    with pytest.raises(DataError, match="all alike"):
        _ = SuiteResult("mine", METHODS[0], scores[1:3], measure="correlation").overall


def spearman(one: list[float], other: list[float]) -> float:
    def ranks(values: list[float]) -> list[float]:
        return [sum(one > other for other in values) + sum(one == other for other in values) / 2 for one in values]

    first, second = ranks(one), ranks(other)
    middle = len(one) / 2
    return sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True)) / math.sqrt(
        sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second)
    )


LAYOUT = {
    "supplement_filtered/turn_taking": [{"sentence_good": "He is here.", "sentence_bad": "He are here."}],
    "ewok_filtered/agent-properties": [
        {"Context1": "It rains.", "Context2": "It is dry.", "Target1": "He is wet.", "Target2": "He is dry."}
        | {"Domain": "agent-properties", "ContextType": "direct", "ContextDiff": "antonym", "TargetDiff": "swap"}
    ],
    "comps/comps_wugs_dist-before": [
        {"prefix_acceptable": "A cat", "prefix_unacceptable": "A car", "property_phrase": "can sleep."}
    ],
    "entity_tracking/regular": [
        {"input_prefix": "The box has a cat. The box has", "options": [" a cat.", " a dog.", " no cat."], "numops": 0}
    ],
    "entity_tracking/ambiref": [{"input_prefix": "The box has", "options": [" a cat.", " a dog."], "numops": 2}] * 2,
    "wug_past_tense/wug_past": [
        {"sentences": f"They {verb}ed.\tThey {verb}t.", "ratio": str(share)}
        for verb, share in (("kip", 0.5), ("spim", 0.9), ("blick", 0.2))
    ],
}
"""The layout of BabyLM's evaluation_data, with items of our own."""

FOUND = {
    "blimp-supplement": ("turn_taking", None, ["He is here.", "He are here."]),
    "ewok": ("agent-properties", " He is wet.", ["It rains. He is wet.", "It rains. He is dry."]),
    "comps": ("wugs_dist_before", "can sleep.", ["A cat can sleep.", "A car can sleep."]),
    "entity-tracking": ("ambiref_2_ops", " a cat.", ["The box has a cat.", "The box has a dog."]),
    "wug-past": ("wug_past", None, ["They kiped.", "They kipt."]),
}


@pytest.fixture(scope="module")
def evaluation_data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation_data")
    for name, rows in LAYOUT.items():
        file = folder / "full_eval" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize("name", FOUND)
def test_the_files_of_babylm_are_read(name, evaluation_data):
    paradigm, completion, texts = FOUND[name]
    first = next(iter(SUITES.get(name).items(evaluation_data)))
    assert first.paradigm == paradigm and [option.text for option in first.options] == texts
    assert first.options[0].completion == (completion or texts[0])
    run = CliRunner().invoke(cli, ["evaluate", MODEL, "--suite", f"{name}:data={evaluation_data}", "--json"])
    found = json.loads(run.stdout)
    assert found["measure"] == ("correlation" if "wug" in name else "accuracy")
    assert found["overall"]["items"] == {"entity-tracking": 3, "wug-past": 3}.get(name, 1)
    with pytest.raises(DataError, match=str(evaluation_data)):
        list(SUITES.get("wug-adjective").items(evaluation_data))


def test_evaluation_data_is_found_where_corpora_are(evaluation_data, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"--data DIR.*evaluation_data.*ewok-core"):
        evaluate_suite(MODEL, "ewok")
    (tmp_path / "evaluation_data").symlink_to(evaluation_data)
    assert len(evaluate_suite(MODEL, "entity-tracking", limit=1).scores) == 2


def test_blank_lines_count_in_no_limit(tmp_path):
    pairs = [json.dumps({"sentence_good": f"{word} sees.", "sentence_bad": f"{word} see."}) for word in "abc"]
    (tmp_path / "agreement.jsonl").write_text("\n\n" + "\n \n".join(pairs))
    found = SUITES.get("blimp").items(tmp_path, limit=2)
    assert [item.options[0].text for item in found] == ["a sees.", "b sees."]


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 2"), ('{"sentence_good": "a"}', "line 2"), ('{"sentence_good": "a", "sentence_bad":" "}', "no texts")],
)
def test_a_broken_line_is_named(line, message, tmp_path: Path):
    (tmp_path / "one.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        list(SUITES.get("blimp").items(tmp_path))


def test_what_cannot_be_scored_is_refused(tokenizer, tmp_path: Path, monkeypatch):
    with pytest.raises(ConfigError, match="gives no probabilities of sentences"):
        sentence_scores(built("bert-style", "sequence-classification", tokenizer), tokenizer, TEXTS)
    with pytest.raises(ConfigError, match="is scored by log-probability"):
        sentence_scores(built("gpt2-style", "causal-lm", tokenizer), tokenizer, TEXTS, method=METHODS[1])
    with pytest.raises(ConfigError, match="positions"):
        sentence_scores(built("gpt2-style", "causal-lm", tokenizer), tokenizer, ["The cat " * 2000])
    with pytest.raises(InputError, match=rf"scores of {len(TEXTS)} of {len(TEXTS)} texts are no numbers \(NaN\)"):
        spoiled = built("gpt2-style", "causal-lm", tokenizer)
        torch.nn.init.constant_(spoiled.lm_head.weight, torch.nan)
        sentence_scores(spoiled, tokenizer, TEXTS)
    with pytest.raises(UnknownNameError, match="did you mean 'blimp'"):
        evaluate_suite(MODEL, "blmp")
    # Which would have the score of a certain text, and always be preferred.
    drops = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE({"<s>": 0, "a": 1}, [])), bos_token="<s>")
    with pytest.raises(InputError, match="the tokenizer makes no tokens of '和', which gives no score"):
        sentence_scores(built("gpt2-style", "causal-lm", tokenizer), drops, ["aa", "和"])
    with pytest.raises(DataError, match="--data DIR.*supplement_filtered"):
        evaluate_suite(MODEL, "blimp-supplement")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=str(tmp_path / "blimp")):
        evaluate_suite(MODEL, "blimp")


def test_a_shipped_model_on_the_command_line(tmp_path: Path):
    rows = [("He is here.", "He are here."), ("They are here.", "They is here."), ("I am here.", "I is here.")]
    lines = (json.dumps({"sentence_good": a, "sentence_bad": b, "UID": "be", "field": "syntax"}) for a, b in rows)
    (tmp_path / "be.jsonl").write_text("\n".join(lines))
    words = ["evaluate", MODEL, "--suite", "blimp", "--data", str(tmp_path)]
    run = CliRunner().invoke(cli, [*words, "--json"])
    found = json.loads(run.stdout)
    assert (found["overall"]["value"], found["paradigm"]["be"]["items"]) == (100.0, 3)
    shown = CliRunner().invoke(cli, [*words, "--limit", "1"])
    assert "mean of 1 paradigms" in shown.stdout and "count as wrong" in shown.stdout
    refused = CliRunner().invoke(cli, [*words, "--task", "translation"])
    assert refused.exit_code == 2 and "--suite takes no --task" in refused.stderr
    for useless in (["--batch-size", "3"], ["--n-bootstrap", "5"], ["--generation", "num_beams=2"]):
        assert f"--suite takes no {useless[0]}" in CliRunner().invoke(cli, [*words, *useless]).stderr
    twice = CliRunner().invoke(cli, [*words[:3], "blimp:limit=2", *words[4:], "--limit", "1"])
    assert "--suite blimp:limit=2 and --limit 1 were given" in twice.stderr


PLUGIN = """
from zoo.training.suites import SUITES, MinimalPair, Suite

def read(file, row):
    return MinimalPair(row["yes"], row["no"], file.stem)

SUITES.register("mine", Suite("Pairs of mine.", "a page", "yes.jsonl of mine", read, "yes and no"))
"""


@pytest.mark.thorough
def test_a_plugin_adds_a_suite(tmp_path: Path):
    site, data = tmp_path / "site", tmp_path / "data"
    (site / "mine-1.dist-info").mkdir(parents=True)
    (site / "mine-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (site / "mine-1.dist-info/entry_points.txt").write_text("[zoo.plugins]\nmine = mine_suite\n")
    (site / "mine_suite.py").write_text(PLUGIN)
    data.mkdir()
    (data / "yes.jsonl").write_text('{"yes": "He is here.", "no": "He are here."}')
    words = ["-m", "zoo", "evaluate", MODEL, "--suite", "mine", "--data", str(data), "--json"]
    run = run_python(words, env={**os.environ, "PYTHONPATH": str(site)})
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["paradigm"]["yes"]["items"] == 1
