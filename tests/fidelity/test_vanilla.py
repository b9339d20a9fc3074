"""The notebook's Transformer and EncoderClassifier, and each of its quirks."""

import pytest
import torch
from fidelity import support
from oracles import vanilla

import zoo
from zoo.models.residual import Residual

HINTS = dict(num_attention_heads=3, pad_token_id=1, decoder_pad_token_id=2, **support.NO_DROPOUT)
CLASSIFIER_HINTS = dict(num_attention_heads=3, pad_token_id=1, **support.NO_DROPOUT)
ORACLE = dict(n_heads=3, src_pad_idx=1, trg_pad_idx=2)
SIZES = [dict(heads=3, seed=0), dict(heads=1, n_layers=1, seed=1), dict(heads=4, n_layers=3, seed=2)]


def batch(seed=0, corner_cases=True):
    """A padded batch; with corner cases one source is all padding and one target begins with it."""
    src, trg = vanilla.random_inputs(batch_size=6, seed=seed)
    if corner_cases:
        src[2], trg[3, 0] = 1, 2
    return src, trg


def logits(model, src, trg):
    return model(input_ids=src, decoder_input_ids=trg).logits


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_transformer_equals_the_original(sizes, dtype):
    sizes = dict(sizes)
    heads = sizes.pop("heads")
    weights = vanilla.random_state_dict(**sizes, dtype=dtype)
    src, trg = batch(sizes["seed"])
    expected = vanilla.transformer(weights, src, trg, **{**ORACLE, "n_heads": heads})
    for _, model in support.modes(zoo.convert(weights, **{**HINTS, "num_attention_heads": heads})):
        support.assert_equal("000 Transformer", logits(model, src, trg), expected)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_classifier_equals_the_original(sizes, dtype):
    sizes = dict(sizes)
    heads = sizes.pop("heads")
    weights = vanilla.random_classifier_state_dict(**sizes, dtype=dtype)
    src, _ = batch(sizes["seed"])
    expected = vanilla.classifier(weights, src, n_heads=heads, pad_idx=1)
    for _, model in support.modes(zoo.convert(weights, **{**CLASSIFIER_HINTS, "num_attention_heads": heads})):
        support.assert_equal("000 EncoderClassifier", model(input_ids=src).logits, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("keep_dead", [False, True])
def test_gradients_are_equal_and_dead_weights_have_none(keep_dead, training):
    weights = vanilla.random_state_dict()
    src, trg = batch()
    model = zoo.convert(weights, **HINTS, keep_dead=keep_dead).train(training)
    dead = vanilla.dead_keys(weights)
    assert len(dead) == 10 * 2
    if keep_dead:
        support.assert_gradients_equal(
            model, weights, lambda m: logits(m, src, trg), lambda w: vanilla.transformer(w, src, trg, **ORACLE), dead
        )
        unreached = [name for name, value in model.named_parameters() if value.grad is None]
        assert len(unreached) == len(dead)
        assert model.num_parameters() == sum(value.numel() for value in weights.values())
    else:
        logits(model, src, trg).sum().backward()
        assert all(value.grad is not None for value in model.parameters())
        assert model.num_parameters() == sum(value.numel() for key, value in weights.items() if key not in dead)


@pytest.mark.parametrize("training", [False, True])
def test_classifier_gradients_are_equal(training):
    weights = vanilla.random_classifier_state_dict()
    src, _ = batch()
    support.assert_gradients_equal(
        zoo.convert(weights, **CLASSIFIER_HINTS).train(training),
        weights,
        lambda model: model(input_ids=src).logits,
        lambda given: vanilla.classifier(given, src, n_heads=3, pad_idx=1),
    )


def test_scrambled_dead_weights_change_no_bit():
    weights = vanilla.random_state_dict()
    scrambled = support.copies(weights)
    for key in vanilla.dead_keys(weights):
        scrambled[key].normal_()
    src, trg = batch()
    before, after = (logits(zoo.convert(given, **HINTS, keep_dead=True), src, trg) for given in (weights, scrambled))
    assert torch.equal(before, after)


def test_generation_decodes_as_the_original_would():
    weights = vanilla.random_state_dict()
    src, _ = batch(corner_cases=False)
    model = zoo.convert(weights, **HINTS, bos_token_id=3, eos_token_id=4)
    made = model.generate(input_ids=src, attention_mask=(src != 1).long(), max_new_tokens=6, eos_token_id=None)
    trg = torch.full((len(src), 1), 3)
    for _ in range(6):
        best = vanilla.transformer(weights, src, trg, **ORACLE)[:, -1:].argmax(dim=-1)
        trg = torch.cat([trg, best], dim=1)
    assert torch.equal(made, trg)


def test_scores_scaled_by_model_width():
    weights = vanilla.random_state_dict()
    src, trg = batch(corner_cases=False)
    on, off = support.with_and_without("vanilla", "scores-scaled-by-model-width", weights, **HINTS)
    assert support.difference(logits(on, src, trg), logits(off, src, trg)) > 0.01
    hot = support.copies(weights)  # queries larger by sqrt(D / hd) undo the other scale
    for key in hot:
        if ".attention.queries." in key:
            hot[key] *= 3**0.5
    rescaled = zoo.convert(hot, **HINTS)
    assert support.difference(logits(off, src, trg), logits(rescaled, src, trg)) < 1e-12


@pytest.mark.parametrize(
    ("quirk", "dead", "live"),
    [
        ("cross-attention-reuses-self", "joint_attention", "attention"),
        ("feed-forward-reuses-cross-norm", "norm_3", "norm_2"),
    ],
)
def test_weights_that_take_the_place_of_others(quirk, dead, live):
    weights = vanilla.random_state_dict()
    src, trg = batch(corner_cases=False)
    on, off = support.with_and_without("vanilla", quirk, weights, **HINTS)
    assert support.difference(logits(on, src, trg), logits(off, src, trg)) > 0.1
    copied = support.copies(weights)
    for key in copied:
        if f".{dead}." in key:
            copied[key] = weights[key.replace(dead, live)]
    _, off = support.with_and_without("vanilla", quirk, copied, **HINTS)
    assert support.difference(logits(on, src, trg), logits(off, src, trg)) < 1e-12


def test_dropout_on_the_skip():
    weights = vanilla.random_state_dict()
    everything_drops = {**HINTS, "dropout": 1.0}
    models = support.with_and_without("vanilla", "dropout-on-the-skip", weights, **everything_drops)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    for model, drops_skip in zip(models, (True, False), strict=True):
        residual: Residual = model.model.encoder.layers[0].mlp_residual.train()
        kept = residual.norm_out(torch.tanh(x)) if drops_skip else residual.norm_out(x)
        assert torch.equal(residual(x, torch.tanh), kept)
        below: Residual = model.model.decoder.layers[0].mlp_residual.train()  # the decoder drops branches either way
        assert torch.equal(below(x, torch.tanh), below.norm_out(x))


def test_masked_rows_are_uniform():
    weights = vanilla.random_state_dict()
    src, trg = batch()
    later = trg.clone()
    later[3, -1] = 5
    on, off = support.with_and_without("vanilla", "masked-rows-are-uniform", weights, **HINTS)
    outputs = on(input_ids=src, decoder_input_ids=trg, output_attentions=True)
    assert torch.equal(outputs.encoder_attentions[0][2], torch.full((3, 9, 9), 1 / 9, dtype=torch.float64))
    assert torch.equal(outputs.decoder_attentions[0][3, :, 0], torch.full((3, 7), 1 / 7, dtype=torch.float64))
    leak = [(logits(model, src, trg) - logits(model, src, later))[3, 0].abs().max() for model in (on, off)]
    assert leak[0] > 0.01
    assert leak[1] == 0
    assert logits(off, src, trg).isfinite().all()


def test_masks_from_token_ids():
    weights = vanilla.random_state_dict()
    src, trg = batch(corner_cases=False)
    on, off = support.with_and_without("vanilla", "masks-from-token-ids", weights, **HINTS)
    given = dict(attention_mask=(src != 1).long(), decoder_attention_mask=(trg != 2).long())
    masked = off(input_ids=src, decoder_input_ids=trg, **given).logits
    assert torch.equal(logits(on, src, trg), masked)
    assert support.difference(logits(off, src, trg), masked) > 0.1


def test_masks_from_token_ids_refuse_a_cache_that_forgets_them():
    model = zoo.convert(vanilla.random_state_dict(), **HINTS)
    with pytest.raises(zoo.base.errors.InputError, match="use_cache=False"):
        model.generate(input_ids=batch()[0], max_new_tokens=3, use_cache=True)


def test_max_pools_padding():
    weights = vanilla.random_classifier_state_dict(max_length=13)
    src, _ = batch(corner_cases=False)
    longer = torch.cat([src, torch.full((len(src), 4), 1)], dim=1)
    on, off = support.with_and_without("vanilla", "max-pools-padding", weights, **CLASSIFIER_HINTS)
    mask, longer_mask = (src != 1).long(), (longer != 1).long()
    assert support.difference(on(src, mask).logits, on(longer, longer_mask).logits) > 0.01
    assert support.difference(off(src, mask).logits, off(longer, longer_mask).logits) < 1e-12


def test_torch_initialization():
    on, off = support.initialized("vanilla")
    for table in (on.embed_tokens, on.position):
        assert table.weight.std().item() == pytest.approx(1, abs=0.05)
    assert off.embed_tokens.weight.std().item() == pytest.approx(64**-0.5, abs=0.01)
    assert off.layers[0].mlp.up_proj.weight.abs().max().item() > 64**-0.5
