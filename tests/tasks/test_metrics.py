"""Accuracy and F1 against plain loops, and their intervals against statistics."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.comparison.display.findings import randomization_p
from zoo.data.tasks import translation_scores
from zoo.data.tasks.metrics import accuracy_score, entities, entity_f1_score, has_entities, macro_f1_score
from zoo.data.tasks.scores import perplexity
from zoo.training.evaluate import Evaluation

TEXTS = {
    "13a": ["The dog is here, Ana.", "Der Hund heißt 猫.", "12 34"],
    "zh": ["今天天气很好，我们去公园。", "我喜欢猫和狗, said Ana."],
    "char": ["猫が好きです。", "ฉันชอบแมวมาก", "今日は天気がいいです"],
}


@pytest.mark.parametrize("tokenizer", TEXTS)
def test_bleu_counts_words_of_scripts_without_blanks_too(tokenizer):
    """With 13a a sentence is one word of them, and a translation without a mistake has a BLEU of 0."""
    found = translation_scores(TEXTS[tokenizer], TEXTS[tokenizer])["bleu"]
    assert f"|tok:{tokenizer}|" in found.signature and found.value == pytest.approx(100)


@pytest.mark.parametrize(
    ("references", "effective"), [(["Hallo.", "ein Hund", "drei"], "yes"), (["Hallo.", "Das ist ein Hund."], "no")]
)
def test_translations_of_a_word_or_two_have_a_bleu(references, effective):
    """References of fewer than 4 words have no run of 4, and a translation without a mistake had a BLEU of 0."""
    others = ["Katze"] * len(references)
    right, wrong = (translation_scores(one, references)["bleu"] for one in (references, others))
    assert f"|eff:{effective}|" in right.signature and right.value == pytest.approx(100) and wrong.value == 0
    assert randomization_p("bleu", tuple(references), tuple(others), tuple(references)) < 1


ROWS = st.lists(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=5), min_size=1, max_size=8)


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_scores_are_what_a_loop_counts(rows):
    answers = [[answer for answer, _ in row] for row in rows]
    labels = [[label for _, label in row] for row in rows]
    pairs = [pair for row in rows for pair in row]
    accuracy = accuracy_score(answers, labels)
    assert accuracy.value == pytest.approx(100 * sum(a == b for a, b in pairs) / len(pairs), abs=1e-4)
    found = []
    for label in range(4):
        right = sum(pair == (label, label) for pair in pairs)
        wrong = sum((label in pair) and pair[0] != pair[1] for pair in pairs)
        if right + wrong:
            found.append(2 * right / (2 * right + wrong))
    assert macro_f1_score(answers, labels, 4).value == pytest.approx(100 * sum(found) / len(found), abs=1e-4)


def test_an_interval_has_the_width_of_statistics():
    """Of a share p of n independent examples, 95 % lie within 1.96 standard deviations of sqrt(p (1 - p) / n)."""
    number, share = 1000, 0.8
    labels = np.ones((number, 1), int)
    answers = (np.arange(number) < share * number).astype(int)[:, None]
    score = accuracy_score(answers, labels, n_bootstrap=1000)
    low, high = score.interval
    assert low < score.value < high
    assert (high - low) / 2 == pytest.approx(196 * math.sqrt(share * (1 - share) / number), rel=0.1)
    assert score.signature == "labels:1000|bs:1000|seed:12345"
    assert score == accuracy_score(answers, labels, n_bootstrap=1000)


def test_examples_are_resampled_and_not_labels():
    """A hundred equal labels in one example are one observation."""
    answers, labels = [[1] * 100, [0] * 100], [[1] * 100] * 2
    assert accuracy_score(answers, labels, n_bootstrap=200).interval == (0, 100)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("I-PER I-PER I-LOC", {("PER", 0, 2), ("LOC", 2, 3)}),
        ("O O", set()),
        ("B-a-b I-a-b", {("a-b", 0, 2)}),
    ],
)
def test_entities_are_read_as_conlleval_reads_them(tags, expected):
    assert entities(tags.split()) == expected


def test_an_entity_must_be_found_whole():
    tags = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "O"]]
    answers = [["B-PER", "O", "O"], ["B-LOC", "O", "B-PER"]]
    assert entity_f1_score(answers, tags).value == pytest.approx(100 * 2 * 1 / (3 + 2), abs=1e-4)
    assert entity_f1_score([["O", "O", "O"]] * 2, tags).value == 0


def test_labels_that_mark_entities_are_recognised():
    assert has_entities(["O", "B-PER", "I-PER"]) and not has_entities(["NOUN", "VERB", "O"]) and not has_entities(["O"])


@pytest.mark.parametrize(
    ("loss", "expected"), [(0.0, 1.0), (2.0, 7.3891), (30.0, math.inf), (1e4, math.inf), (math.nan, math.nan)]
)
def test_a_perplexity_follows_from_any_loss(loss: float, expected: float) -> None:
    evaluation = Evaluation("language-modeling", "", False, 1, 1, loss, {}, [], 0.0)
    for found in (perplexity(loss, "").value, evaluation.perplexity):
        assert found == pytest.approx(expected, nan_ok=True, abs=1e-4)
