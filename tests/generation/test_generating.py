"""Text in, text out: order, batches, scores, and what is refused."""

import copy

import pytest
import torch
from transformers import TextStreamer

import zoo
from zoo.base.errors import CheckpointError, ConfigError, SequenceTooLongError, UnknownOverrideError
from zoo.data.tasks import TASKS, train_tokenizers
from zoo.training import save_checkpoint
from zoo.training.generation import ExportEngine, load_checkpoint

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXTS = ["The dog is here.", "No.", "My son doesn't like hot milk.", "They live with their father in a small house."]


@pytest.fixture(scope="module")
def tokenizers():
    task = TASKS.get("translation")
    examples = task.load().heldout
    return train_tokenizers(task.sources(examples), task.references(examples), kind="word", joint=False)


@pytest.fixture(scope="module")
def translator(tokenizers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "translator"
    settings = TASKS.get("translation").model_settings(tokenizers)
    model = zoo.build("pre-norm:position=learned,max_position_embeddings=40", "seq2seq-lm", seed=1, **TINY, **settings)
    save_checkpoint(model, tokenizers, folder)
    return folder


@pytest.fixture(scope="module")
def writer(tokenizers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "writer"
    model = zoo.build("gpt2-style", "causal-lm", seed=1, vocab_size=len(tokenizers.source), **TINY)
    save_checkpoint(model, type(tokenizers)(tokenizers.source, tokenizers.source), folder)
    return folder


@pytest.fixture(params=["translator", "writer"])
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("lengths", [{}, {"max_length": 12}])
def test_no_text_changes_how_much_follows_another(tokenizers, lengths):
    model = zoo.build("gpt2-style:max_position_embeddings=20", seed=1, vocab_size=len(tokenizers.source), **TINY)
    given = {"tokenizer": tokenizers, "eos_token_id": -1, **lengths}  # never ends by itself
    texts = [*TEXTS, *(["no " * 17] if not lengths else [])]
    together = zoo.generate(model, texts, **given)
    assert [one.text for one in together] == [zoo.generate(model, text, **given)[0].text for text in texts]


def test_a_token_is_forced_after_a_single_one_in_batches_too(tokenizers):
    """As transformers does: after a prompt of one token, which padding lengthens."""
    model = zoo.build("gpt2-style", seed=1, vocab_size=len(tokenizers.source), **TINY)
    given = {"tokenizer": tokenizers, "eos_token_id": -1, "forced_bos_token_id": 7, "max_new_tokens": 3}
    texts = ["no", "The dog is here."]
    assert [len(tokenizers.source(text, add_special_tokens=False)["input_ids"]) > 1 for text in texts] == [False, True]
    together = zoo.generate(model, texts, **given)
    assert [one.text for one in together] == [zoo.generate(model, text, **given)[0].text for text in texts]


@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_batches_give_what_single_texts_give_in_their_order(folder, options):
    together = zoo.generate(folder, TEXTS, batch_size=3, max_new_tokens=6, scores=True, **options)
    assert [one.prompt for one in together] == TEXTS
    for text, one in zip(TEXTS, together, strict=True):
        (alone,) = zoo.generate(folder, text, max_new_tokens=6, scores=True, **options)
        assert [candidate.text for candidate in alone.candidates] == [candidate.text for candidate in one.candidates]
        assert [c.score for c in alone.candidates] == pytest.approx([c.score for c in one.candidates], abs=1e-4)
        assert len(one.candidates) == options.get("num_return_sequences", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_implementation": "offloaded"}, "'offloaded' was given, which a model on a CPU cannot offload"),
        ({"cache_implementation": "offloaded_static"}, "which a model on a CPU cannot offload"),
        ({"exponential_decay_length_penalty": (2, 1.5)}, "there is no end token that it makes likelier"),
        ({"is_assistant": True}, "transformers sets for a model that drafts"),
    ],
)
def test_settings_that_transformers_fails_at_are_refused_by_name(writer, options, message):
    model, tokenizers = load_checkpoint(writer, device="cpu")
    only = copy.deepcopy(tokenizers.source)
    only.eos_token = model.generation_config.eos_token_id = None
    with pytest.raises(ConfigError, match=message):
        zoo.generate(model, TEXTS[0], tokenizer=only, max_new_tokens=4, **options)


def test_scores_are_the_models_own_log_probabilities(translator, tokenizers):
    """Beside the loss of the output as a label; at any temperature."""
    model = zoo.load(translator)
    options = {"do_sample": True, "temperature": 0.5, "top_k": 5, "max_new_tokens": 5, "seed": 3}
    checked = 0
    for one in zoo.generate(model, TEXTS, tokenizer=tokenizers, scores=True, suppress_tokens=[3], **options):
        ids = tokenizers.source([one.prompt], return_tensors="pt")
        labels = tokenizers.target.convert_tokens_to_ids(one.text.split())
        if len(labels) == 5 and tokenizers.target.unk_token_id not in labels:
            with torch.no_grad():
                loss = model(**ids, labels=torch.tensor([labels])).loss.item()
            assert one.candidates[0].score == pytest.approx(-loss, abs=1e-4)
            checked += 1
    assert checked


def test_scores_of_beams_are_log_probabilities_with_any_length_penalty(translator, tokenizers):
    model = zoo.load(translator)
    end, start = tokenizers.target.eos_token_id, model.config.decoder_start_token_id
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 3.0}
    checked = 0
    for batch in (TEXTS, TEXTS[:1]):
        given = {"scores": True, "suppress_tokens": [3], "max_new_tokens": 6, **options}
        for one in zoo.generate(model, batch, tokenizer=tokenizers, **given):
            ids = tokenizers.source([one.prompt], return_tensors="pt")
            for candidate in one.candidates:
                labels = [*tokenizers.target.convert_tokens_to_ids(candidate.text.split()), end][:6]
                if start in labels or tokenizers.target.unk_token_id in labels:
                    continue
                with torch.no_grad():
                    loss = model(**ids, labels=torch.tensor([labels])).loss.item()
                assert candidate.score == pytest.approx(-loss, abs=1e-4)
                checked += 1
    assert checked


def test_the_first_of_several_ends_pads_where_nothing_else_does(writer):
    """As Llama 3 has them: outputs end at any of them, and their scores there."""
    model, tokenizers = load_checkpoint(writer)
    tokenizers.source.pad_token = model.config.pad_token_id = model.generation_config.pad_token_id = None
    (one,) = zoo.generate(model, TEXTS[:1], tokenizer=tokenizers, max_new_tokens=6)
    stop = tokenizers.source.convert_tokens_to_ids(one.text.split()[0])
    model.generation_config.eos_token_id = [tokenizers.source.eos_token_id, stop]
    for batch in (TEXTS[:1], TEXTS):
        first = zoo.generate(model, batch, tokenizer=tokenizers, max_new_tokens=6, scores=True)[0]
        assert first.text.split() == one.text.split()[:1] and first.candidates[0].score < 0


def test_a_seed_makes_sampling_reproducible_and_leaves_torch_alone(folder):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    options = {"do_sample": True, "max_new_tokens": 8, "num_return_sequences": 3}
    first, again, other = (zoo.generate(folder, TEXTS, seed=seed, **options) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected) and first == again != other


def test_tokens_can_be_watched(folder, capsys):
    tokenizer = load_checkpoint(folder)[1].target
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    (one,) = zoo.generate(folder, TEXTS[0], streamer=streamer, max_new_tokens=6)
    assert capsys.readouterr().out.split() == one.text.split()


def test_strings_stop_an_output(writer, tokenizers):
    (whole,) = zoo.generate(writer, TEXTS[0], max_new_tokens=9)
    word = whole.text.split()[3]
    together = zoo.generate(writer, [TEXTS[0], TEXTS[3]], max_new_tokens=9, stop_strings=word, scores=True)
    first = whole.text[: whole.text.index(word)] + word
    assert together[0].text.strip() == first.strip()
    alone = zoo.generate(writer, TEXTS[0], max_new_tokens=9, stop_strings=word, scores=True)
    assert together[0].candidates[0].score == pytest.approx(alone[0].candidates[0].score, abs=1e-4)


@pytest.mark.parametrize("ids", [{"eos_token_id": None}, {"pad_token_id": 2}], ids=str)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=str)
def test_strings_stop_outputs_that_others_outlast(writer, ids, options, monkeypatch):
    """Without an end, transformers writes on until all have stopped; padding by an end is none of the output's."""
    model, tokenizers = load_checkpoint(writer)
    for name, value in ids.items():
        monkeypatch.setattr(model.generation_config, name, value)
    if None in ids.values():
        tokenizers.source.eos_token = None
    (whole,) = zoo.generate(model, TEXTS[0], tokenizer=tokenizers, max_new_tokens=9)
    given = {"tokenizer": tokenizers, "max_new_tokens": 9, "stop_strings": whole.text.split()[3], "scores": True}
    for text, one in zip(TEXTS, zoo.generate(model, TEXTS, **given, **options), strict=True):
        (alone,) = zoo.generate(model, text, **given, **options)
        assert [candidate.text for candidate in alone.candidates] == [candidate.text for candidate in one.candidates]
        assert [c.score for c in alone.candidates] == pytest.approx([c.score for c in one.candidates], abs=1e-4)


def test_padding_counts_as_no_repetition(writer):
    model, tokenizers = load_checkpoint(writer)
    given, options = {"tokenizer": tokenizers, "max_new_tokens": 6}, {"no_repeat_ngram_size": 1}
    (plain,) = zoo.generate(model, TEXTS[0], **given)
    model.config.pad_token_id = tokenizers.source.convert_tokens_to_ids(plain.text.split()[0])  # as GPT-2's is an end
    together = zoo.generate(model, TEXTS, **given, **options)
    assert [one.text for one in together] == [zoo.generate(model, text, **given, **options)[0].text for text in TEXTS]


def test_settings_that_are_unset_are_not_the_models_own(writer):
    model, tokenizers = load_checkpoint(writer)
    given = {"tokenizer": tokenizers, "suppress_tokens": [tokenizers.source.eos_token_id]}
    (whole,) = zoo.generate(model, TEXTS[0], **given, max_new_tokens=7)
    own = model.generation_config
    own.max_new_tokens, own.no_repeat_ngram_size, own.stop_strings = 2, 1, whole.text.split()[2:3]
    options = {"no_repeat_ngram_size": None, "stop_strings": None}
    length = len(tokenizers.source(TEXTS[0])["input_ids"]) - 1 + 7
    assert zoo.generate(model, TEXTS[0], **given, **options, max_length=length)[0].text == whole.text
    assert len(zoo.generate(model, TEXTS[0], **given, max_length=length, no_repeat_ngram_size=0)[0].text.split()) <= 3


def test_nothing_gives_nothing_and_a_language_model_begins_by_itself(writer):
    assert zoo.generate(writer, []) == [] and zoo.generate(writer, "", max_new_tokens=3)[0].text


def test_outputs_end_where_positions_do(translator):
    (one,) = zoo.generate(translator, TEXTS[0], eos_token_id=0)
    assert len(one.text.split()) == 39  # the first of 40 positions has the beginning


def test_what_cannot_be_done_is_refused(translator, tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr(ExportEngine, "run", None)  # nothing is exported before a device is refused
    encoder = zoo.build("pre-norm@tiny", "masked-lm", vocab_size=50)
    for model, texts, options, error, message in (
        (translator, ["No.", "no " * 50], {}, SequenceTooLongError, "text 2 has 51 tokens; the model reads at most 40"),
        (translator, TEXTS, {"num_beam": 2}, UnknownOverrideError, "did you mean 'num_beams'"),
        (translator, TEXTS, {"num_beams": True}, ConfigError, "num_beams=True is not valid; valid: 1 and more"),
        (translator, TEXTS, {"max_time": "long"}, ConfigError, "max_time='long' is not valid; it is a number"),
        (translator, TEXTS, {"min_length": True}, ConfigError, "min_length=True is not valid; it is a whole number"),
        (translator, TEXTS, {"stop_strings": 5}, ConfigError, "stop_strings=5 is not valid; it is a text, or several"),
        (translator, TEXTS, {"eos_token_id": "<eos>"}, ConfigError, "'<eos>' is not valid; it is an id, or several"),
        (translator, TEXTS, {"do_sample": True, "seed": 2**64}, ConfigError, f"seed={2**64} is not valid; valid: -9"),
        (translator, TEXTS, {"do_sample": True, "top_p": 1.5}, ConfigError, "valid: 0 to 1"),
        (translator, TEXTS, {"forced_bos_token_id": 9999}, ConfigError, "index 9999 is out of bounds"),
        (translator, TEXTS, {"temperature": 0.5}, ConfigError, "temperature"),
        (translator, TEXTS, {"max_length": 5, "max_new_tokens": 4}, ConfigError, "give one of both"),
        (translator, TEXTS, {"min_length": 2, "min_new_tokens": 3}, ConfigError, "give one of both"),
        (translator, TEXTS, {"diversity_penalty": 0.5}, ConfigError, "without num_beam_groups; give both"),
        (translator, TEXTS, {"seed": 1}, ConfigError, "seed=1 changes nothing without sampling"),
        (translator, TEXTS, {"num_return_sequences": 2}, ConfigError, "num_return_sequences"),
        (zoo.load(translator), TEXTS, {}, ConfigError, "without a tokenizer"),
        (zoo.load(translator), TEXTS, {"engine": "onnx"}, ConfigError, "which is loaded already: give the checkpoint"),
        (translator, TEXTS, {"engine": "onnx", "device": "meta"}, ConfigError, "exports run on the CPU: leave it out"),
        (encoder, TEXTS, {"tokenizer": tokenizers}, ConfigError, "does not write"),
    ):
        with pytest.raises(error, match=message):
            zoo.generate(model, texts, **options)
    zoo.build("pre-norm@tiny", "causal-lm", vocab_size=50).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        zoo.generate(tmp_path, TEXTS)
