"""Vocabularies that grow, shrink and are replaced, however embeddings are shared."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

import zoo
from zoo.base.errors import ConfigError

TASKS = {"pre-norm": ("causal-lm", "masked-lm")}
SHARING = {
    "separate": dict(),
    "tied": dict(tie_word_embeddings=True),
    "shared": dict(share_encoder_decoder_embeddings=True),
    "three-way": dict(tie_word_embeddings=True, share_encoder_decoder_embeddings=True),
}
TWO_VOCABULARIES = {
    "separate": dict(decoder_vocab_size=41),
    "tied": dict(decoder_vocab_size=41, tie_word_embeddings=True),
}
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])


def sharing(settings):
    return pytest.mark.parametrize("settings", settings.values(), ids=settings.keys())


def build(task: str, settings: dict, **more):
    return zoo.build("pre-norm@tiny", task, vocab_size=37, lm_head_bias=True, seed=0, **settings, **more)


def tables(model) -> int:
    """How many different matrices embed and project tokens."""
    body = model.model
    names = [body.encoder, body.decoder] if hasattr(body, "encoder") else [body]
    return len({id(stack.embed_tokens.weight) for stack in names} | {id(model.lm_head.weight)})


def logits(model, **inputs):
    given = inputs or {"input_ids": IDS, **({"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {})}
    with torch.no_grad():
        return model(**given).logits


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", [50, 20])
def test_a_vocabulary_is_resized_with_its_head(task, tied, size):
    model = build(task, dict(tie_word_embeddings=tied))
    before = logits(model)
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == size
    assert tables(model) == (1 if tied else 2)
    after = logits(model)
    assert after.shape[-1] == size
    kept = min(size, 37)
    torch.testing.assert_close(after[..., :kept], before[..., :kept])
    model(input_ids=IDS, labels=IDS).loss.backward()
    logits(model, input_ids=IDS * 0 + size - 1)


@sharing(SHARING)
def test_source_and_target_of_one_size_are_resized_together(settings, tmp_path: Path):
    model = build("seq2seq-lm", settings)
    before, number = logits(model), tables(model)
    model.resize_token_embeddings(50)
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (50, 50)
    assert tables(model) == number
    torch.testing.assert_close(logits(model)[..., :37], before)
    logits(model, input_ids=IDS * 0 + 49, decoder_input_ids=IDS * 0 + 49)
    assert model.generate(IDS, max_new_tokens=2).shape[0] == 2
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        written = [name for name in file.keys() if "embed_tokens" in name or name == "lm_head.weight"]  # noqa: SIM118
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert tables(loaded) == number == len(written)
    assert torch.equal(logits(loaded), logits(model))


@sharing(TWO_VOCABULARIES)
def test_two_vocabularies_are_resized_one_at_a_time(settings):
    model = build("seq2seq-lm", settings)
    before, number = logits(model), tables(model)
    model.resize_token_embeddings(50)
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (50, 41)
    torch.testing.assert_close(logits(model), before)
    model.resize_decoder_token_embeddings(64)
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (50, 64)
    assert tables(model) == number
    torch.testing.assert_close(logits(model)[..., :41], before)
    logits(model, input_ids=IDS, decoder_input_ids=IDS * 0 + 63)


def test_a_target_that_is_the_source_is_not_resized_alone():
    model = build("seq2seq-lm", SHARING["shared"])
    with pytest.raises(ConfigError, match="resize_token_embeddings"):
        model.resize_decoder_token_embeddings(50)


def test_a_size_is_rounded_up_to_a_multiple():
    model = build("seq2seq-lm", SHARING["three-way"])
    model.resize_token_embeddings(38, pad_to_multiple_of=16)
    assert model.config.vocab_size == model.lm_head.out_features == 48


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
@sharing(SHARING)
def test_a_new_embedding_is_read_by_every_stack_that_shares_it(settings, task):
    model = build(task, settings)
    new = nn.Embedding(37, model.config.hidden_size)
    model.set_input_embeddings(new)
    model.tie_weights()
    assert model.get_input_embeddings() is new
    shared = task != "seq2seq-lm" or model.config.share_encoder_decoder_embeddings
    if task == "seq2seq-lm":
        assert model.get_encoder().get_input_embeddings() is new
        assert (model.get_decoder().get_input_embeddings() is new) is shared
    assert (model.get_output_embeddings().weight is new.weight) is (shared and model.config.tie_word_embeddings)


def test_untying_when_loading_gives_the_head_its_own_copy(tmp_path: Path):
    model = build("causal-lm", dict(tie_word_embeddings=True))
    model.save_pretrained(tmp_path)
    untied = type(model).from_pretrained(tmp_path, tie_word_embeddings=False)
    assert untied.lm_head.weight is not untied.model.embed_tokens.weight
