"""When padding is taken out before the layers, and when it stays."""

import pytest
import torch

import zoo
from zoo.base.errors import InputError
from zoo.fast import unpad_layers, unpadding
from zoo.fast.switches import fast_paths, from_environment
from zoo.fast.unpadding import UnpaddedMask, Unpadding
from zoo.models import FEED_FORWARDS
from zoo.models.transformer import transformer_of
from zoo.testing import CHECKS, new_subject
from zoo.testing.fast_paths import rows_of_layers
from zoo.variants.builders import d2l, vanilla

IDS = torch.arange(12).view(2, 6) + 3
RIGHT = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])
LEFT = RIGHT.flip(1)
BETWEEN = torch.tensor([[1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
FULL = torch.ones(2, 6, dtype=torch.long)
EMPTY = torch.tensor([[0] * 6, [1] * 6])


def rows_seen(task: str, mode: str = "always", name: str = "pre-norm@tiny", **inputs) -> set[int]:
    """Batch sizes that the layers of a model see."""
    model = zoo.build(name, task, vocab_size=20).eval()
    with fast_paths(unpadding=mode), torch.no_grad(), rows_of_layers() as rows:
        model(input_ids=IDS, **inputs)
    return rows


@pytest.mark.parametrize(
    ("task", "inputs", "supports_unpadding"),
    [
        ("masked-lm", {"attention_mask": RIGHT}, True),
        ("masked-lm", {"attention_mask": LEFT}, True),
        ("masked-lm", {"attention_mask": BETWEEN}, False),
        ("masked-lm", {"attention_mask": EMPTY}, False),
        ("masked-lm", {"attention_mask": RIGHT[:, None, None].bool()}, False),
        ("masked-lm", {"attention_mask": RIGHT, "output_hidden_states": True}, False),
        ("masked-lm", {"attention_mask": RIGHT, "output_attentions": True}, False),
        ("causal-lm", {"attention_mask": RIGHT, "use_cache": False}, True),
        ("causal-lm", {"attention_mask": RIGHT, "labels": IDS}, True),
        ("causal-lm", {"attention_mask": LEFT, "use_cache": False}, False),
        ("causal-lm", {"attention_mask": RIGHT, "use_cache": True}, False),
        ("sequence-classification", {"attention_mask": RIGHT}, True),
    ],
)
def test_padding_is_removed_where_it_is_unobservable(task, inputs, supports_unpadding):
    assert rows_seen(task, **inputs) == ({1} if supports_unpadding else {2})


@pytest.mark.parametrize(("task", "packed"), [("causal-lm", "position_ids"), ("seq2seq-lm", "decoder_position_ids")])
def test_documents_in_one_row_stay_apart(task, packed):
    subject = new_subject("pre-norm:position=rotary", task)
    inputs = {**subject.inputs(), packed: torch.tensor([[0, 1, 2, 0, 1, 2, 3]]).expand(3, -1), "use_cache": False}
    ids = "decoder_input_ids" if task == "seq2seq-lm" else "input_ids"
    if task == "seq2seq-lm":  # its padding would pay
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1:, 1:] = 0
    first, second = ({**inputs, ids: inputs[ids][:, part], packed: None} for part in (slice(3), slice(3, None)))
    with fast_paths(unpadding="always"):
        together = subject.run(**inputs)
        apart = torch.cat([subject.run(**first), subject.run(**second)], dim=1)
    torch.testing.assert_close(together, apart)


def test_a_small_model_keeps_its_padding():
    assert rows_seen("masked-lm", "auto", attention_mask=RIGHT) == {2}
    wide = "pre-norm@tiny:hidden_size=1024,num_attention_heads=2"
    assert rows_seen("masked-lm", "auto", wide, attention_mask=RIGHT) == {1}
    assert rows_seen("masked-lm", "never", wide, attention_mask=RIGHT) == {2}


@pytest.mark.parametrize("shared", [False, True])
def test_layers_of_two_kinds_are_unpadded_also_in_one_module(shared):
    kinds = {"sliding_window": 2, "layer_types": ["sliding_attention", "full_attention"]}
    config = zoo.config("pre-norm@tiny", share_layers=shared, **kinds)
    assert transformer_of(config).can_unpad(config)


def test_a_defect_that_looks_beyond_one_token_keeps_the_padding():
    harmless = {"vanilla": vanilla.TOKEN_BY_TOKEN, "d2l-style": d2l.TOKEN_BY_TOKEN}
    for name in ("vanilla", "d2l-style", "nlpt-encoder", "odom-style", "explicando"):
        for quirk in zoo.describe(name).quirks:
            config = zoo.config(f"{name}@tiny+{quirk}")
            supports_unpadding = transformer_of(config).can_unpad(config)
            assert supports_unpadding == (quirk in harmless.get(name, ())), f"{name}+{quirk}"


@pytest.mark.parametrize("variant", [vanilla, d2l], ids=["vanilla", "d2l-style"])
def test_the_other_defects_are_unpadded_with_all_their_effects(variant):
    name = "vanilla" if variant is vanilla else "d2l-style"
    CHECKS.get("unpadding_changes_nothing").function(
        new_subject("+".join([name, *sorted(variant.TOKEN_BY_TOKEN)]), "seq2seq-lm")
    )


def test_a_foreign_part_keeps_the_padding(monkeypatch):
    monkeypatch.setattr(FEED_FORWARDS, "_items", dict(FEED_FORWARDS._items))
    FEED_FORWARDS.register("looks-back", FEED_FORWARDS.get("mlp"))
    assert rows_seen("masked-lm", name="pre-norm@tiny:feed_forward=looks-back", attention_mask=RIGHT) == {2}


def test_a_window_that_binds_keeps_the_padding():
    assert rows_seen("masked-lm", name="pre-norm@tiny:sliding_window=3", attention_mask=RIGHT) == {2}
    assert rows_seen("masked-lm", name="pre-norm@tiny:sliding_window=6", attention_mask=RIGHT) == {1}


def test_what_is_unpadded_is_padded_again():
    states = torch.randn(2, 6, 4)
    for mask in (RIGHT, LEFT):
        unpadded = Unpadding.of(mask)
        assert unpadded is not None
        assert unpadded.unpad(states).shape == (1, 8, 4)
        assert torch.equal(unpadded.pad(unpadded.unpad(states)), states * mask[..., None])
    assert torch.equal(Unpadding.full(2, 6, states.device).unpad(states), states.view(1, 12, 4))
    assert Unpadding.of(BETWEEN) is None


def test_a_traced_model_keeps_its_padding(monkeypatch):
    monkeypatch.setattr(unpad_layers, "find_tokens", lambda *_: pytest.fail("lengths were read"))
    model = zoo.build("pre-norm@tiny", "masked-lm", vocab_size=20).eval()
    exported = torch.export.export(model, (), {"input_ids": IDS, "attention_mask": RIGHT})
    assert exported is not None


def test_modes_are_checked(monkeypatch):
    with pytest.raises(InputError, match="'allways'; valid: auto, always, never; did you mean 'always'"):
        fast_paths(unpadding="allways").__enter__()
    monkeypatch.setenv("ZOO_UNPADDING", "never")
    assert from_environment().unpadding == "never"


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(RIGHT, RIGHT, True), (LEFT, LEFT, False), (FULL, RIGHT, False)]
)
@pytest.mark.parametrize("key_heads", [4, 2])
def test_sequences_by_themselves_attend_as_with_padding(queries, keys, causal, biased, key_heads, monkeypatch):
    mask = UnpaddedMask(*(found for found in (Unpadding.of(queries), Unpadding.of(keys)) if found is not None))
    torch.manual_seed(0)
    tokens = int(queries.sum()), int(keys.sum())
    query = torch.randn(1, 4, tokens[0], 8, dtype=torch.float64, requires_grad=True)
    key, value = (torch.randn(1, key_heads, tokens[1], 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    bias = torch.randn(2, 4, 6, 6, dtype=torch.float64) if biased else None
    results = []
    module = torch.nn.Module()
    module.is_causal = causal
    for short in (100, 0):
        monkeypatch.setattr(unpadding, "SHORT", short)
        for drops in (False, True):
            monkeypatch.setattr(unpadding, "draws_bits", lambda *_, drops=drops: drops)
            mixed, _ = unpadding.unpadded_attention(module, query, key, value, mask, 0.3, position_bias=bias)
            results.append((mixed, *torch.autograd.grad(mixed.square().sum(), (query, key, value))))
    for found in results[1:]:
        torch.testing.assert_close(found, results[0])
