"""transformers' pipelines on saved zoo models and their tokenizers."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline
from transformers_citizen.support import warnings_of

import zoo
from zoo.building.weights import locate
from zoo.training.generation import generate as write

SPECIAL = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", "[MASK]"]
WORDS = [*SPECIAL, "the", "a", "zoo", "is", "full", "of", "small", "models"]
LABELS = {0: "dull", 1: "fine"}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        bos_token="[BOS]",
        eos_token="[EOS]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )


def load(kind: str, variant: str, task: str, tokenizer, folder: Path, **settings):
    model = zoo.build(variant, task, vocab_size=len(tokenizer), seed=0, **settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with warnings_of("transformers.pipelines.base") as warnings:
        loaded = pipeline(kind, model=str(folder))
    assert not any("not supported" in message for message in warnings)
    assert type(loaded.model) is type(model)
    return loaded


@pytest.mark.parametrize("variant", ["gpt2-style@tiny", "llama-style@tiny", "gemma2-style@tiny", "alibi-decoder@tiny"])
def test_text_generation(variant, tokenizer, tmp_path: Path):
    generate = load("text-generation", variant, "causal-lm", tokenizer, tmp_path)
    for text in (["the zoo is", "a zoo"], "the zoo is"):
        outputs = generate(text, max_new_tokens=4, min_new_tokens=4, do_sample=False, batch_size=2, num_beams=2)
        first = outputs[0][0] if isinstance(text, list) else outputs[0]
        assert first["generated_text"].startswith("the zoo is")
    alone = generate("a zoo", max_new_tokens=4, do_sample=False)[0]["generated_text"]
    together = generate(["the zoo is full of small models", "a zoo"], max_new_tokens=4, do_sample=False, batch_size=2)
    assert together[1][0]["generated_text"] == alone


@pytest.mark.parametrize("variant", ["bert-style@tiny", "pre-norm@tiny", "universal@tiny"])
def test_fill_mask(variant, tokenizer, tmp_path: Path):
    fill = load("fill-mask", variant, "masked-lm", tokenizer, tmp_path)
    answers = fill("the zoo is [MASK] of models", top_k=3)
    assert len(answers) == 3
    assert 0 < answers[0]["score"] <= 1
    assert answers[0]["token_str"] in WORDS


@pytest.mark.parametrize("variant", ["bert-style@tiny", "vanilla@tiny", "llama-style@tiny"])
def test_text_classification(variant, tokenizer, tmp_path: Path):
    labels = dict(id2label=LABELS, label2id={name: index for index, name in LABELS.items()})
    classify = load("text-classification", variant, "sequence-classification", tokenizer, tmp_path, **labels)
    answers = classify(["the zoo is full", "a model"], top_k=None)
    assert {answer["label"] for answer in answers[0]} == set(LABELS.values())
    assert sum(answer["score"] for answer in answers[0]) == pytest.approx(1)
    together = classify(["the zoo is full of small models", "a model"], batch_size=2)
    assert together[1]["score"] == pytest.approx(classify("a model")[0]["score"], abs=1e-5)


@pytest.mark.parametrize("variant", ["bert-style@tiny", "nlpt-encoder@tiny", "gpt2-style@tiny"])
def test_token_classification(variant, tokenizer, tmp_path: Path):
    labels = dict(id2label=LABELS, label2id={name: index for index, name in LABELS.items()})
    classify = load("token-classification", variant, "token-classification", tokenizer, tmp_path, **labels)
    answers = classify("the zoo is full")
    assert [answer["word"] for answer in answers if answer["word"] != "[BOS]"] == ["the", "zoo", "is", "full"]
    assert {answer["entity"] for answer in answers} <= set(LABELS.values())


@pytest.mark.parametrize("variant", ["bert-style@tiny", "llama-style@tiny", "marian-style@tiny"])
def test_feature_extraction(variant, tokenizer, tmp_path: Path):
    extract = load("feature-extraction", variant, "feature-extraction", tokenizer, tmp_path)
    features = extract("the zoo is full", return_tensors=True)
    assert features.shape == (1, 5, extract.model.config.hidden_size)


def test_what_is_trained_to_write_goes_on_where_the_prompt_ends():
    """And not after the end of a text, where it would begin another."""
    writer = pipeline("text-generation", model=str(locate("gpt2-style.char-en")))
    assert writer.tokenizer("The water ").input_ids[-1] != writer.tokenizer.eos_token_id
    (ours,) = write("gpt2-style.char-en", ["The water "], max_new_tokens=20)
    (theirs,) = writer("The water ", max_new_tokens=20, do_sample=False, return_full_text=False)
    assert theirs["generated_text"].strip() == ours.candidates[0].text
