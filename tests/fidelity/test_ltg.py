"""LTG-BERT and GPT-BERT against loops from the papers; the same weights as a causal and as a masked model."""

from pathlib import Path

import pytest
import torch
from fidelity.support import DTYPES, NO_DROPOUT, assert_equal
from oracles import ltg
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import zoo
from zoo.converters import convert_back, sniff
from zoo.models.attentions.disentangled import DisentangledPosition
from zoo.models.partly_causal import partly_causal
from zoo.testing import randomize

HEADS, LENGTH = 3, 15
LENGTHS = (LENGTH, 6)
EPSILON = {False: 1e-7, True: 1e-5}


def converted(gates: bool, dtype: torch.dtype, **given):
    state = ltg.random_state_dict(gates, dtype=dtype, **given)
    distance = {"relative_attention_max_distance": ltg.LONGEST}
    return state, zoo.convert(state, num_attention_heads=HEADS, **distance, **NO_DROPOUT)


def batch():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(ltg.VOCABULARY, (len(LENGTHS), LENGTH), generator=generator)
    return ids, (torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]).long()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("gates", [False, True])
def test_masked_logits_equal_the_original(gates, backend, dtype):
    state, model = converted(gates, dtype)
    model.set_attn_implementation(backend)
    ids, mask = batch()
    found = model(input_ids=ids, attention_mask=mask).logits
    for row, length in enumerate(LENGTHS):
        seen = torch.ones(length, length, dtype=torch.bool)
        expected = ltg.logits(state, ids[row, :length], seen, HEADS, EPSILON[gates], not gates)
        assert_equal("gpt-bert" if gates else "ltg-bert", found[row, :length], expected)


def test_positions_in_other_rows_are_a_quirk():
    state, model = converted(False, torch.float64)
    corrected = zoo.convert(state, num_attention_heads=HEADS, relative_attention_max_distance=ltg.LONGEST, quirks=())
    ids, _ = batch()
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    for other_rows, one in ((True, model), (False, corrected)):
        expected = ltg.logits(state, ids[0], seen, HEADS, EPSILON[False], other_rows)
        assert_equal("ltg-bert", one(ids).logits[0], expected)
        assert convert_back(one).keys() == state.keys()


@pytest.mark.parametrize("dtype", DTYPES)
def test_causal_logits_equal_the_original(dtype, tmp_path: Path):
    state, masked = converted(True, dtype)
    masked.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    ids, mask = batch()
    found = model(input_ids=ids, attention_mask=mask).logits
    for row, length in enumerate(LENGTHS):
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        expected = ltg.logits(state, ids[row, :length], seen, HEADS, EPSILON[True])
        assert_equal("gpt-bert, causal", found[row, :length], expected)
    model.save_pretrained(tmp_path / "causal")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "causal", dtype=dtype)
    assert_equal("gpt-bert, again", again(ids, attention_mask=mask).logits, masked(ids, attention_mask=mask).logits)


def test_a_cache_changes_nothing(tmp_path: Path):
    _, masked = converted(True, torch.float64)
    masked.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    ids, _ = batch()
    whole = model(ids).logits
    begun = model(ids[:, :9], use_cache=True)
    rest = model(ids[:, 9:12], past_key_values=begun.past_key_values).logits
    step = model(ids[:, 12:13], past_key_values=begun.past_key_values).logits
    assert torch.allclose(torch.cat([rest, step], dim=1), whole[:, 9:13], atol=1e-12)


@pytest.mark.parametrize("gates", [False, True])
def test_the_way_back_gives_every_weight_and_the_format_is_recognised(gates):
    state, model = converted(gates, torch.float32)
    assert sniff(state) == ("gpt-bert" if gates else "ltg-bert")
    back = convert_back(model)
    assert back.keys() == state.keys() and all(torch.equal(back[key], state[key]) for key in state)


def test_all_distances_have_the_bucket_of_the_original():
    """Also beyond the longest distance, up to which the original has buckets."""
    found = DisentangledPosition.bucket(torch.arange(-600, 601), 32, 512)
    assert found.min() == -31 and found.max() == 31 and torch.equal(found, -found.flip(0))
    assert found[600:617].tolist() == list(range(17)) and (found[1:] - found[:-1] >= 0).all()
    assert (found[1111:] == 31).all() and found[1110] == 31


def test_partly_causal_rows_are_those_of_both_models(tmp_path: Path):
    _, masked = converted(True, torch.float64)
    masked.save_pretrained(tmp_path)
    causal = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    ids, mask = batch()
    rows = torch.tensor([True, False])
    both = masked(ids, attention_mask=mask, causal_rows=rows).logits
    assert torch.allclose(both[0], causal(ids, attention_mask=mask).logits[0], atol=1e-12)
    real = mask[1].bool()
    assert torch.allclose(both[1][real], masked(ids, attention_mask=mask).logits[1][real], atol=1e-12)
    assert torch.equal(masked(ids, attention_mask=mask, causal_rows=rows.long()).logits, both)
    assert partly_causal(ids, mask, rows).any(dim=-1).all()


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("layer_types", [None, ["sliding_attention", "full_attention"]])
def test_windows_hold_in_partly_causal_batches(layer_types, backend, tmp_path: Path):
    settings = {"sliding_window": 3, "layer_types": layer_types, "vocab_size": 40}
    masked = randomize(zoo.build("gpt-bert-style@tiny", "masked-lm", seed=0, **settings), std=0.5)
    masked.set_attn_implementation(backend)
    masked.save_pretrained(tmp_path)
    causal = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=backend)
    ids = torch.randint(5, 40, (2, 12), generator=torch.Generator().manual_seed(0))
    both = masked(ids, causal_rows=torch.tensor([True, False])).logits
    torch.testing.assert_close(both[0], causal(ids).logits[0])
    torch.testing.assert_close(both[1], masked(ids).logits[1])


@pytest.mark.parametrize("skip_logits", [False, True])
def test_the_loss_weights_both_kinds_by_their_rows(skip_logits):
    _, model = converted(True, torch.float64)
    ids, _ = batch()
    ids = ids.repeat(2, 1)
    labels = ids.clone()
    rows = torch.tensor([True, False, False, False])
    labels[~rows] = torch.where(torch.arange(LENGTH) % 5 == 3, labels[~rows], -100)
    found = model(ids, labels=labels, causal_rows=rows, skip_logits=skip_logits).loss
    logits = model(ids, causal_rows=rows).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
    counted = labels[:, 1:] != -100
    expected = losses[rows][counted[rows]].mean() / 4 + losses[~rows][counted[~rows]].mean() * 3 / 4
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    halves = model(ids, labels=labels, causal_rows=rows, num_items_in_batch=2 * counted.sum()).loss
    assert halves.item() == pytest.approx(expected.item() / 2, rel=1e-6)
