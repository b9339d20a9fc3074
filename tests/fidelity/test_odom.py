"""The notebook's Transformer on features, and each of its quirks."""

import pytest
import torch
from fidelity import support
from oracles import odom

import zoo

SIZES = [
    dict(seed=0),
    dict(num_encoder_layers=1, num_decoder_layers=1, model_dim=10, seed=1),  # heads do not divide the width
    dict(num_encoder_layers=2, num_decoder_layers=3, model_dim=3, num_heads=5, seed=2),  # more heads than features
    dict(num_encoder_layers=4, num_decoder_layers=4, num_heads=1, seed=3),
]


def run(model, x_1, x_2, **masks):
    return model(inputs_embeds=x_1.clone(), decoder_inputs_embeds=x_2.clone(), **masks).logits


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_transformer_equals_the_original(batch_size, sizes, dtype):
    weights = odom.random_state_dict(**sizes, dtype=dtype)
    width = sizes.get("model_dim", 12)
    x_1, x_2 = odom.random_inputs(batch_size=batch_size, model_dim=width, seed=sizes["seed"], dtype=dtype)
    for _, model in support.modes(zoo.convert(weights, **support.NO_DROPOUT)):
        support.assert_equal("001 Transformer, before softmax", run(model, x_1, x_2), odom.scores(weights, x_1, x_2))
        support.assert_equal("001 Transformer", run(model, x_1, x_2).softmax(-1), odom.transformer(weights, x_1, x_2))


def test_parameters_count_as_in_the_original():
    sizes = dict(hidden_size=512, num_attention_heads=4, intermediate_size=2048)
    for layers in (1, 4):
        assert zoo.build("odom-style", faithful=True, num_hidden_layers=layers, **sizes).num_parameters() == 5_846_144


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_equal_and_aliases_share_theirs(training):
    weights = odom.random_state_dict()
    x_1, x_2 = odom.random_inputs()
    model = zoo.convert(weights, **support.NO_DROPOUT).train(training)
    support.assert_gradients_equal(model, weights, lambda m: run(m, x_1, x_2), lambda w: odom.scores(w, x_1, x_2))
    assert len(list(model.parameters())) == 44


def test_input_gradients_are_equal():
    weights = odom.random_state_dict()
    given = [x.requires_grad_() for x in odom.random_inputs()]
    expected = torch.autograd.grad(odom.scores(weights, *given).square().sum(), given)
    found = torch.autograd.grad(run(zoo.convert(weights), *given).square().sum(), given)
    for ours, theirs in zip(found, expected, strict=True):
        assert support.difference(ours, theirs) < 1e-10


@pytest.mark.parametrize("quirk", ["heads-share-weights", "layers-share-weights"])
def test_sharing_ends_with_the_quirk(quirk):
    """Without it, copies of the same weights compute the same, but learn apart."""
    weights = odom.random_state_dict()
    x_1, x_2 = odom.random_inputs()
    on, off = support.with_and_without("odom-style", quirk, weights, **support.NO_DROPOUT)
    assert support.difference(run(on, x_1, x_2), run(off, x_1, x_2)) < 1e-12
    assert off.num_parameters() > on.num_parameters()
    for model in (on, off):
        run(model, x_1, x_2).square().sum().backward()
    attention = off.model.encoder.layers[0].self_attn
    if quirk == "heads-share-weights":
        shared = on.model.encoder.layers[0].self_attn.v_proj.weight.grad
        apart = attention.v_proj.weight.grad.unflatten(0, (3, 4))
        assert support.difference(apart.sum(0), shared) < 1e-10
        assert support.difference(apart[0], apart[1]) > 1e-3
    else:
        shared = on.model.encoder.layers[0].mlp.up_proj.weight.grad
        apart = [layer.mlp.up_proj.weight.grad for layer in off.model.encoder.layers]
        assert len(on.model.encoder.layers) == 1 and len(apart) == 3
        assert support.difference(sum(apart), shared) < 1e-10
        assert support.difference(apart[0], apart[1]) > 1e-3


def test_softmax_over_the_batch():
    x_1, x_2 = odom.random_inputs()
    on, off = support.with_and_without("odom-style", "softmax-over-the-batch", odom.random_state_dict())
    assert support.difference(run(on, x_1, x_2), run(off, x_1, x_2)) > 0.01
    other = x_1.clone()
    other[1:] = torch.randn(2, 6, 12, dtype=torch.float64)
    assert support.difference(run(on, x_1, x_2)[:1], run(on, other, x_2)[:1]) > 1e-3
    assert support.difference(run(off, x_1, x_2)[:1], run(off, other, x_2)[:1]) < 1e-12
    given = dict(inputs_embeds=x_1.clone(), decoder_inputs_embeds=x_2.clone(), output_attentions=True)
    for attention in on(**given).encoder_attentions:
        assert support.difference(attention.sum(0), torch.ones(3, 6, 6, dtype=torch.float64)) < 1e-12


def test_softmax_over_the_batch_takes_masks_and_parts_as_the_usual_one():
    settings = dict(vocab_size=20, seed=0, dtype=torch.float64)
    ids, seen = torch.arange(2 * 4).view(2, 4), torch.ones(2, 1, 4, 4, dtype=torch.bool)
    seen[1, ..., 2:] = False
    added = torch.zeros(seen.shape).double().masked_fill(~seen, torch.finfo(torch.float64).min)

    def logits(mask=None, **parts):
        model = zoo.build("odom-style@tiny+softmax-over-the-batch", **settings, **parts)
        return model(ids, attention_mask=mask, decoder_input_ids=ids).logits

    assert torch.equal(logits(seen), logits(added)) and torch.equal(logits(seen), logits(seen[:, 0, 0].long()))
    assert support.difference(logits(attn_logit_softcapping=0.01), logits()) > 1e-3
    model = zoo.build("odom-style@tiny+softmax-over-the-batch", **settings, dropout=0.0, attention_dropout=0.5)
    given = dict(input_ids=ids, decoder_input_ids=ids, output_attentions=True)
    assert all((weights > 0).all() for weights in model(**given).encoder_attentions)
    assert all(0.2 < (weights == 0).float().mean() < 0.8 for weights in model.train()(**given).encoder_attentions)


@pytest.mark.parametrize("qk_norm", ["head", "full"])
def test_the_one_head_that_is_shared_has_the_norms_of_its_width(qk_norm):
    model = zoo.build("odom-style@tiny+heads-share-weights", qk_norm=qk_norm, vocab_size=20)
    assert model.model.encoder.layers[0].self_attn.q_norm.weight.shape == (model.config.head_dim,)
    assert model(torch.ones(2, 4, dtype=torch.long)).logits.shape == (2, 4, 20)


def test_softmax_over_a_batch_of_one_ignores_queries_and_keys():
    x_1, x_2 = odom.random_inputs(batch_size=1)
    model = zoo.convert(odom.random_state_dict())
    before = run(model, x_1, x_2)
    for name, value in model.named_parameters():
        if ".q_proj." in name or ".k_proj." in name:
            value.data.normal_()
    assert torch.equal(run(model, x_1, x_2), before)


def test_decoder_sees_the_future():
    x_1, x_2 = odom.random_inputs()
    later = x_2.clone()
    later[:, -1] += 1
    on, off = support.with_and_without("odom-style", "decoder-sees-the-future", odom.random_state_dict())
    assert support.difference(run(on, x_1, x_2)[:, 0], run(on, x_1, later)[:, 0]) > 1e-3
    assert support.difference(run(off, x_1, x_2)[:, 0], run(off, x_1, later)[:, 0]) == 0


def test_decoder_sees_the_future_but_not_padding():
    support.assert_the_future_is_seen_but_not_padding("odom-style", "decoder-sees-the-future")


def test_padding_is_attended():
    """Within a batch, as the softmax runs over the rows, so that only an unread mask leaves the output alone."""
    x_1, x_2 = odom.random_inputs()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
    on, off = support.with_and_without("odom-style", "padding-is-attended", odom.random_state_dict())
    assert torch.equal(run(on, x_1, x_2, attention_mask=mask), run(on, x_1, x_2))
    assert support.difference(run(off, x_1, x_2, attention_mask=mask), run(off, x_1, x_2)) > 0.01


def test_cosines_have_own_exponents():
    x_1, x_2 = odom.random_inputs()
    on, off = support.with_and_without("odom-style", "cosines-have-own-exponents", odom.random_state_dict())
    assert support.difference(run(on, x_1, x_2), run(off, x_1, x_2)) > 0.01
    tables = [model.model.encoder.position.table(torch.arange(50)[None])[0] for model in (on, off)]
    assert torch.equal(tables[0], odom.position_encoding(50, 12))
    assert torch.equal(tables[0][:, 0::2], tables[1][:, 0::2])
    assert (tables[0] - tables[1])[:, 1::2].abs().max() > 1


def test_changes_its_inputs():
    x_1, x_2 = odom.random_inputs()
    on, off = support.with_and_without("odom-style", "changes-its-inputs", odom.random_state_dict())
    for model, changes in ((on, True), (off, False)):
        given = [x_1.clone(), x_2.clone()]
        model(inputs_embeds=given[0], decoder_inputs_embeds=given[1])
        for after, before in zip(given, (x_1, x_2), strict=True):
            table = odom.position_encoding(before.shape[1], 12)
            assert torch.equal(after, before + table if changes else before)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        on(inputs_embeds=x_1.clone().requires_grad_(), decoder_inputs_embeds=x_2.clone())


def test_works_on_features():
    on = zoo.convert(odom.random_state_dict())
    ids = torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(zoo.base.errors.InputError, match="decoder_inputs_embeds"):
        on(input_ids=ids, decoder_input_ids=ids)
    off = zoo.build(
        "odom-style@tiny",
        quirks=support.all_but("odom-style", "works-on-features"),
        vocab_size=20,
        decoder_vocab_size=15,
    )
    assert off(input_ids=ids, decoder_input_ids=ids).logits.shape == (2, 3, 15)
    assert on.lm_head.weight.shape == (12, 12)


def test_torch_initialization():
    off = support.initialized("odom-style")[1].layers[0].mlp.up_proj
    assert off.weight.abs().max().item() > 64**-0.5
    assert off.bias.abs().max().item() == 0
