"""Without quirks the five documents' models are causal, and neither padding nor other rows change a row."""

import pytest
import torch
from fidelity.support import difference

import zoo

SEQ2SEQ = ("vanilla", "d2l-style", "odom-style", "explicando")
SIZES = dict(vocab_size=20, dtype=torch.float64, seed=0)


@pytest.fixture(params=SEQ2SEQ)
def model(request):
    return zoo.build(f"{request.param}@tiny", "seq2seq-lm", **SIZES)


def ids(*shape):
    return torch.randint(3, 20, shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_default_decoders_are_causal(model):
    src, tgt = ids(3, 6), ids(3, 5)
    later = tgt.clone()
    later[:, 3:] = 4
    found, changed = (model(input_ids=src, decoder_input_ids=given).logits for given in (tgt, later))
    assert difference(found[:, :3], changed[:, :3]) == 0
    assert difference(found[:, 3:], changed[:, 3:]) > 1e-3


def test_padding_does_not_change_real_positions(model):
    src, tgt = ids(3, 6), ids(3, 5)
    expected = model(input_ids=src, decoder_input_ids=tgt).logits
    pads = torch.zeros(3, 4, dtype=torch.long)
    masks = {
        "attention_mask": torch.cat([torch.ones_like(src), pads], dim=1),
        "decoder_attention_mask": torch.cat([torch.ones_like(tgt), pads], dim=1),
    }
    padded = model(
        input_ids=torch.cat([src, pads], dim=1), decoder_input_ids=torch.cat([tgt, pads], dim=1), **masks
    ).logits[:, :5]
    assert difference(padded, expected) < 1e-12


def test_other_rows_do_not_change_a_row(model):
    src, tgt = ids(3, 6), ids(3, 5)
    together = model(input_ids=src, decoder_input_ids=tgt).logits
    for row in range(3):
        alone = model(input_ids=src[row : row + 1], decoder_input_ids=tgt[row : row + 1]).logits
        assert difference(together[row : row + 1], alone) < 1e-12


@pytest.mark.parametrize("name", ["vanilla", "nlpt-encoder"])
def test_classifiers_ignore_padding_and_other_rows(name):
    model = zoo.build(f"{name}@tiny", "sequence-classification", **SIZES)
    src = ids(3, 6)
    expected = model(src).logits
    pads = torch.zeros(3, 4, dtype=torch.long)
    mask = torch.cat([torch.ones_like(src), pads], dim=1)
    assert difference(model(torch.cat([src, pads], dim=1), attention_mask=mask).logits, expected) < 1e-12
    assert difference(model(src[:1]).logits, expected[:1]) < 1e-12


@pytest.mark.parametrize("name", [*SEQ2SEQ, "nlpt-encoder"])
def test_default_builds_are_causal_in_training_mode_too_and_train(name):
    task = "masked-lm" if name == "nlpt-encoder" else "seq2seq-lm"
    model = zoo.build(f"{name}@tiny", task, vocab_size=20, seed=0, dropout=0.0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    src = ids(4, 5)
    losses = []
    for _ in range(20):
        loss = model(input_ids=src, labels=src).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
