"""The chapter's encoder, decoder and EncoderDecoder, and each of their quirks."""

import pytest
import torch
from fidelity import support
from oracles import d2l
from oracles.weights import part
from transformers import DynamicCache, EncoderDecoderCache

import zoo
from zoo.models import ZooForCausalLM

HINTS = dict(num_attention_heads=3, pad_token_id=1, bos_token_id=2, eos_token_id=3, **support.NO_DROPOUT)
SIZES = [dict(seed=0), dict(num_layers=1, use_bias=True, seed=1), dict(num_layers=3, use_bias=True, seed=2)]


def batch(seed=0, empty_row=True):
    src, tgt, lens = d2l.random_inputs(batch_size=6, seed=seed)
    if empty_row:
        lens = lens.clone()
        lens[2] = 0
    return src, tgt, lens


def mask_of(lens, length=9):
    return (torch.arange(length) < lens[:, None]).long()


def logits(model, src, tgt, lens):
    return model(input_ids=src, attention_mask=None if lens is None else mask_of(lens), decoder_input_ids=tgt).logits


def stepwise(model, src, tgt, lens):
    """Logits of a target given one token a call, with the model's cache."""
    encoded = model.model.encoder(input_ids=src, attention_mask=mask_of(lens))
    cache, steps = EncoderDecoderCache(DynamicCache(), DynamicCache()), []
    for token in tgt[:, :, None].unbind(dim=1):
        output = model(
            encoder_outputs=encoded, attention_mask=mask_of(lens), decoder_input_ids=token, past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        steps.append(output.logits)
    return torch.cat(steps, dim=1)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_encoder_decoder_equals_the_original(sizes, dtype):
    weights = d2l.random_state_dict(**sizes, dtype=dtype)
    src, tgt, lens = batch(sizes["seed"])
    for training, model in support.modes(zoo.convert(weights, **HINTS)):
        for valid in (lens, None):
            expected = d2l.encoder_decoder(weights, src, tgt, valid, num_heads=3, training=training)
            support.assert_equal(f"003 EncoderDecoder, training {training}", logits(model, src, tgt, valid), expected)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_encoder_equals_the_original(sizes, dtype):
    weights = part(d2l.random_state_dict(**sizes, dtype=dtype), "encoder")
    src, _, lens = batch(sizes["seed"])
    per_query = torch.randint(0, 10, (6, 9), generator=torch.Generator().manual_seed(0))
    visible = torch.arange(9) < per_query[:, :, None]
    additive = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)[:, None]
    for _, model in support.modes(zoo.convert(weights, **HINTS)):
        for valid, mask in ((lens, mask_of(lens)), (None, None), (per_query, additive)):
            expected = d2l.encoder(weights, src, valid, num_heads=3).hidden
            support.assert_equal("003 TransformerEncoder", model(src, attention_mask=mask).last_hidden_state, expected)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_decoder_equals_the_original(sizes, dtype):
    weights = part(d2l.random_state_dict(**sizes, dtype=dtype), "decoder")
    _, tgt, lens = batch(sizes["seed"])
    memory = torch.randn(6, 9, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    converted = zoo.convert(weights, **HINTS)
    assert isinstance(converted, ZooForCausalLM)
    for training, model in support.modes(converted):
        for valid in (lens, None):
            state = d2l.init_state(weights, memory, valid)
            expected = d2l.decoder(weights, tgt, state, num_heads=3, training=training).logits
            mask = None if valid is None else mask_of(valid)
            found = model(tgt, encoder_hidden_states=memory, encoder_attention_mask=mask, use_cache=False).logits
            support.assert_equal(f"003 TransformerDecoder, training {training}", found, expected)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_stepwise_decoding_equals_the_original(sizes, dtype):
    weights = d2l.random_state_dict(**sizes, dtype=dtype)
    src, tgt, lens = batch(sizes["seed"])
    for training, model in support.modes(zoo.convert(weights, **HINTS)):
        expected = d2l.stepwise(weights, src, tgt, lens, num_heads=3, training=training)
        support.assert_equal(f"003 stepwise, training {training}", stepwise(model, src, tgt, lens), expected)


@pytest.mark.parametrize("training", [False, True])
def test_several_tokens_a_call_equal_the_original(training):
    weights = d2l.random_state_dict()
    src, tgt, lens = batch()
    below = part(weights, "decoder")
    memory = d2l.encoder(part(weights, "encoder"), src, lens, num_heads=3).hidden
    first = d2l.decoder(below, tgt[:, :3], d2l.init_state(below, memory, lens), num_heads=3, training=training)
    second = d2l.decoder(below, tgt[:, 3:], first.state, num_heads=3, training=training)
    model = zoo.convert(below, **HINTS).train(training)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    given = dict(encoder_hidden_states=memory, encoder_attention_mask=mask_of(lens), past_key_values=cache)
    support.assert_equal("003 chunks", model(tgt[:, :3], **given, use_cache=True).logits, first.logits)
    support.assert_equal("003 chunks", model(tgt[:, 3:], **given, use_cache=True).logits, second.logits)


def test_attention_weights_equal_the_original():
    weights = d2l.random_state_dict()
    src, tgt, lens = batch()
    encoded = d2l.encoder(part(weights, "encoder"), src, lens, num_heads=3)
    below = part(weights, "decoder")
    decoded = d2l.decoder(below, tgt, d2l.init_state(below, encoded.hidden, lens), num_heads=3, training=False)
    outputs = zoo.convert(weights, **HINTS)(
        input_ids=src, attention_mask=mask_of(lens), decoder_input_ids=tgt, output_attentions=True
    )
    for found, expected in (
        (outputs.encoder_attentions, encoded.attention_weights),
        (outputs.decoder_attentions, decoded.self_attention_weights),
        (outputs.cross_attentions, decoded.cross_attention_weights),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            support.assert_equal("003 attention weights", ours.flatten(0, 1), theirs)


def test_greedy_prediction_equals_the_original():
    for seed in range(2):
        weights = d2l.random_state_dict(seed=seed)
        src, _, lens = (x[1:2] for x in batch(seed, empty_row=False))
        made = zoo.convert(weights, **HINTS).generate(input_ids=src, attention_mask=mask_of(lens), max_new_tokens=10)
        expected = d2l.predict(weights, src, lens, num_heads=3, num_steps=10)
        assert made[0, 1:].tolist()[: len(expected)] == expected
        assert len(made[0]) == 1 + min(len(expected) + 1, 10)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_gradients_are_equal(use_bias, training):
    weights = d2l.random_state_dict(use_bias=use_bias)
    src, tgt, lens = batch()
    model = zoo.convert(weights, **HINTS).train(training)
    support.assert_gradients_equal(
        model,
        weights,
        lambda m: logits(m, src, tgt, lens),
        lambda w: d2l.encoder_decoder(w, src, tgt, lens, num_heads=3, training=training),
    )


def test_stepwise_gradients_are_equal():
    weights = d2l.random_state_dict()
    src, tgt, lens = batch()
    support.assert_gradients_equal(
        zoo.convert(weights, **HINTS),
        weights,
        lambda m: stepwise(m, src, tgt, lens),
        lambda w: d2l.stepwise(w, src, tgt, lens, num_heads=3),
    )


def change_of_first_row(model, src, tgt, lens):
    later = tgt.clone()
    later[:, -1] = (later[:, -1] + 1) % 13
    return (logits(model, src, tgt, lens) - logits(model, src, later, lens))[:, 0].abs().max()


def test_evaluation_sees_the_future():
    given = batch(empty_row=False)
    for model, sees in zip(
        support.with_and_without("d2l-style", "evaluation-sees-the-future", d2l.random_state_dict(), **HINTS),
        (True, False),
        strict=True,
    ):
        assert (change_of_first_row(model.eval(), *given) > 0.01) == sees
        assert change_of_first_row(model.train(), *given) == 0


def test_evaluation_sees_the_future_but_not_padding():
    support.assert_the_future_is_seen_but_not_padding("d2l-style", "evaluation-sees-the-future")


def test_every_step_is_position_zero():
    src, tgt, lens = batch(empty_row=False)
    weights = d2l.random_state_dict()
    on, off = support.with_and_without("d2l-style", "every-step-is-position-zero", weights, **HINTS)
    causal = logits(off.train(), src, tgt, lens)  # teacher forcing with ordinary positions, as the original trains
    assert support.difference(logits(on.train(), src, tgt, lens), causal) < 1e-12
    assert support.difference(stepwise(off.eval(), src, tgt, lens), causal) < 1e-12
    mismatch = (stepwise(on.eval(), src, tgt, lens) - causal).abs()
    assert mismatch[:, 0].max() < 1e-12
    assert mismatch[:, 1:].max() > 0.1
    zeros = torch.zeros_like(tgt)
    at_zero = off.train()(
        input_ids=src, attention_mask=mask_of(lens), decoder_input_ids=tgt, decoder_position_ids=zeros
    ).logits
    assert support.difference(stepwise(on.eval(), src, tgt, lens), at_zero) < 1e-12


def test_masked_rows_are_uniform():
    src, tgt, lens = batch()
    on, off = support.with_and_without("d2l-style", "masked-rows-are-uniform", d2l.random_state_dict(), **HINTS)
    weights = on(input_ids=src, attention_mask=mask_of(lens), decoder_input_ids=tgt, output_attentions=True)
    assert torch.equal(weights.encoder_attentions[0][2], torch.full((3, 9, 9), 1 / 9, dtype=torch.float64))
    both = [logits(model, src, tgt, lens) for model in (on, off)]
    differing = (both[0] - both[1]).abs().amax((1, 2)) > 1e-12
    assert differing.tolist() == [False, False, True, False, False, False]
    assert both[1].isfinite().all()


def test_table_ends_at_1000():
    on, off = support.with_and_without("d2l-style", "table-ends-at-1000", d2l.random_state_dict(num_layers=1), **HINTS)
    src, tgt = torch.ones(1, 1001, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    with pytest.raises(zoo.base.errors.SequenceTooLongError, match="1001"):
        on(input_ids=src, decoder_input_ids=tgt)
    assert on(input_ids=src[:, :1000], decoder_input_ids=tgt).logits.isfinite().all()
    assert off(input_ids=src, decoder_input_ids=tgt).logits.isfinite().all()


def test_unscaled_initialization():
    on, off = support.initialized("d2l-style", quirk="unscaled-initialization")
    assert on.embed_tokens.weight.std().item() == pytest.approx(1, abs=0.05)
    assert off.embed_tokens.weight.std().item() == pytest.approx(64**-0.5, abs=0.01)
    xavier = (6 / (64 + 256)) ** 0.5
    assert 0.95 * xavier < on.layers[0].mlp.up_proj.weight.abs().max().item() <= xavier
