"""The corpus that ships with the zoo: clean, and no training pair gives a held-out one away."""

import re
import unicodedata
from collections import Counter
from itertools import chain

import pytest

from zoo.base.errors import DataError
from zoo.data.tasks import SHIPPED, load_splits

LANGUAGES = ("en", "pt")


def read(name: str, corpus: str = "en_pt") -> list[tuple[str, str]]:
    header, *lines = (SHIPPED / corpus / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == list(LANGUAGES)
    pairs = [tuple(line.split("\t")) for line in lines]
    assert all(len(pair) == 2 for pair in pairs)
    return pairs


def words(sentence: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+(?:['-]\w+)*", sentence.lower()))


@pytest.fixture(scope="module")
def train() -> list[tuple[str, str]]:
    return read("train")


@pytest.fixture(scope="module")
def heldout() -> list[tuple[str, str]]:
    return read("heldout")


def test_sizes(train, heldout):
    assert len(train) >= 1000 and 300 <= len(heldout) <= 400


def test_text_is_clean(train, heldout):
    for sentence in chain.from_iterable(train + heldout):
        assert sentence == unicodedata.normalize("NFC", sentence) and sentence == " ".join(sentence.split())
        assert sentence[0].isupper() and sentence[-1] in ".?!", sentence


@pytest.mark.parametrize("language", range(2), ids=LANGUAGES)
def test_no_sentence_occurs_twice(train, heldout, language):
    counts = Counter(pair[language].lower() for pair in train + heldout)
    assert [sentence for sentence, n in counts.items() if n > 1] == []


def templates(sentence: tuple[str, ...]) -> set[tuple[str | None, ...]]:
    """The sentence with one word blotted out, each in turn."""
    return {(*sentence[:i], None, *sentence[i + 1 :]) for i in range(len(sentence))}


def shortened(sentence: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The sentence with one word left out, each in turn."""
    return {(*sentence[:i], *sentence[i + 1 :]) for i in range(len(sentence))}


@pytest.mark.parametrize("language", range(2), ids=LANGUAGES)
def test_no_training_sentence_gives_a_held_out_one_away(train, heldout, language):
    known = {words(pair[language]) for pair in train}
    known_templates = set().union(*map(templates, known))
    known_shortened = set().union(*map(shortened, known))
    for pair in heldout:
        sentence = words(pair[language])
        assert sentence not in known, f"{pair} is in the training data"
        assert not templates(sentence) & known_templates, f"{pair} differs in one word from a training sentence"
        assert not shortened(sentence) & known, f"{pair} is a training sentence and one word more"
        assert sentence not in known_shortened, f"{pair} is a training sentence and one word less"


@pytest.mark.parametrize("language", range(2), ids=LANGUAGES)
def test_held_out_words_are_known(train, heldout, language):
    counts = Counter(chain.from_iterable(words(pair[language]) for pair in train))
    rare = {word for pair in heldout for word in words(pair[language]) if counts[word] < 3}
    assert not rare


@pytest.mark.parametrize("language", range(2), ids=LANGUAGES)
def test_phrases_give_no_held_out_pair_away(heldout, language):
    known = {words(pair[language]) for pair in read("train", "phrases")}
    for pair in heldout:
        sentence = words(pair[language])
        assert sentence not in known and not templates(sentence) & set().union(*map(templates, known))
        assert not shortened(sentence) & known and sentence not in set().union(*map(shortened, known))


def test_corpora_that_ship_are_joined_by_name(train, heldout):
    phrases = read("train", "phrases")
    splits = load_splits("en_pt+phrases+phrases")
    assert list(zip(splits.train["en"], splits.train["pt"], strict=True)) == train + phrases + phrases
    assert len(splits.heldout) == len(heldout)
    with pytest.raises(DataError, match=r"cannot be joined: .*languages.* has the columns text, label"):
        load_splits("en_pt+languages")
    with pytest.raises(DataError, match=r"no file called heldout"):
        load_splits("phrases")
    with pytest.raises(DataError, match=r"en_pt, languages, phrases"):
        load_splits("en-pt")


@pytest.mark.parametrize("part", ["train", "heldout"])
def test_the_corpus_of_languages_is_that_of_translations(part):
    pairs = read(part)
    labels = ("English", "Portuguese")
    expected = [f"{pair[number % 2]}\t{labels[number % 2]}" for number, pair in enumerate(pairs)]
    lines = (SHIPPED / "languages" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == ["text\tlabel", *expected]
