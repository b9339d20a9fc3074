"""The chapter's encoder, classifier and masked attention, and each of their quirks."""

import pytest
import torch
from fidelity import support
from oracles import nlpt

import zoo

SIZES = [
    dict(num_attention_heads=3, seed=0),
    dict(num_attention_heads=1, num_hidden_layers=1, seed=1),
    dict(num_attention_heads=12, num_hidden_layers=3, seed=2),
]


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_encoder_equals_the_original(sizes, dtype):
    weights = nlpt.random_state_dict(**sizes, dtype=dtype)
    ids = nlpt.random_inputs(batch_size=6, seed=sizes["seed"])
    for _, model in support.modes(zoo.convert(weights, **support.NO_DROPOUT)):
        support.assert_equal(
            "002 TransformerEncoder", model(input_ids=ids).last_hidden_state, nlpt.encoder(weights, ids)
        )


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_classifier_equals_the_original(sizes, dtype):
    weights = nlpt.random_classifier_state_dict(**sizes, dtype=dtype)
    ids = nlpt.random_inputs(batch_size=6, seed=sizes["seed"])
    for _, model in support.modes(zoo.convert(weights, **support.NO_DROPOUT)):
        expected = nlpt.classifier(weights, ids)
        support.assert_equal("002 TransformerForSequenceClassification", model(input_ids=ids).logits, expected)


def test_each_norm_has_its_own_eps():
    weights = support.copies(nlpt.random_state_dict())
    for name in ("token", "position"):
        weights[f"embeddings.{name}_embeddings.weight"] *= 1e-3
    ids = nlpt.random_inputs()
    support.assert_equal(
        "002 TransformerEncoder", zoo.convert(weights)(ids).last_hidden_state, nlpt.encoder(weights, ids)
    )


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_equal(training):
    ids = nlpt.random_inputs()
    weights = nlpt.random_state_dict()
    model = zoo.convert(weights, **support.NO_DROPOUT).train(training)
    support.assert_gradients_equal(model, weights, lambda m: m(ids).last_hidden_state, lambda w: nlpt.encoder(w, ids))
    weights = nlpt.random_classifier_state_dict()
    model = zoo.convert(weights, **support.NO_DROPOUT).train(training)
    support.assert_gradients_equal(model, weights, lambda m: m(ids).logits, lambda w: nlpt.classifier(w, ids))


def test_only_embeddings_feed_forwards_and_the_classifier_drop():
    model = zoo.convert(nlpt.random_classifier_state_dict(), dropout=0.5)
    rates = {name: module.p for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)}
    dropping = {name for name, rate in rates.items() if rate}
    assert dropping == {"dropout", "model.dropout", *(f"model.layers.{i}.mlp_residual.dropout" for i in (0, 1))}
    assert model.config.attention_dropout == 0


def additive(mask, dtype):
    """A mask of zeros and ones as the zoo's layers take it. *Shape:* (B, T, S) -> (B, 1, T, S)"""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, torch.finfo(dtype).min)[:, None]


@pytest.mark.parametrize("dtype", support.DTYPES)
def test_masked_attention_equals_the_original(dtype):
    attention = zoo.convert(nlpt.random_state_dict(num_attention_heads=1, dtype=dtype)).layers[0].self_attn
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, length, 12, generator=generator, dtype=torch.float64).to(dtype) for length in (5, 6, 6)
    )
    masks = {
        "causal": torch.ones(1, 5, 6).tril(),
        "none": None,
        "random": torch.rand(3, 5, 6, generator=generator).round(),
    }
    masks["random"][1, 2] = 0
    for mask in masks.values():
        given = None if mask is None else additive(mask, dtype)
        mixed, _ = attention.attend(query[:, None], key[:, None], value[:, None], given)
        expected = nlpt.scaled_dot_product_attention(query, key, value, mask)
        support.assert_equal("002 scaled_dot_product_attention", mixed[:, :, 0], expected)
    assert expected[1, 2].isnan().all() and not expected[1, 3].isnan().any()


def test_masked_rows_are_nan():
    weights = nlpt.random_state_dict(num_hidden_layers=1)
    ids = nlpt.random_inputs()
    mask = torch.ones(4, 9, 9).tril()
    mask[1, 2] = 0
    on, off = support.with_and_without("nlpt-encoder", "masked-rows-are-nan", weights)
    broken, finite = (model(ids, attention_mask=additive(mask, torch.float64)).last_hidden_state for model in (on, off))
    assert broken[1, 2].isnan().all()
    assert broken.isnan().any(-1).sum() == 1
    assert finite.isfinite().all()


def test_padding_is_attended():
    weights = nlpt.random_state_dict(max_position_embeddings=15)
    ids = nlpt.random_inputs()
    longer = torch.cat([ids, torch.zeros(4, 4, dtype=torch.long)], dim=1)
    mask, longer_mask = (ids != 0).long(), (longer != 0).long()
    on, off = support.with_and_without("nlpt-encoder", "padding-is-attended", weights)
    real = mask.bool()

    def states(model, ids, mask):
        return model(ids, attention_mask=mask).last_hidden_state[:, :9][real]

    assert support.difference(states(on, ids, mask), states(on, longer, longer_mask)) > 0.1
    assert support.difference(states(off, ids, mask), states(off, longer, longer_mask)) < 1e-12


def test_torch_initialization():
    on, off = support.initialized("nlpt-encoder", "feature-extraction")
    for model, std in ((on, 1.0), (off, 0.02)):
        assert model.embed_tokens.weight.std().item() == pytest.approx(std, rel=0.05)
        assert model.position.weight.std().item() == pytest.approx(std, rel=0.05)
    assert off.layers[0].mlp.up_proj.bias.abs().max().item() == 0
