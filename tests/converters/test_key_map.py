"""Key maps: every key is matched by exactly one row, in both directions, or is an error that lists it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.converters.errors import CheckpointKeysError, ConversionError
from zoo.converters.key_map import KeyMap, KeyMapError
from zoo.converters.transforms import SAME, TRANSPOSE, join

HEADS = 3
MAP = KeyMap.of(
    ("emb.weight", "embed_tokens.weight"),
    ("blocks.{n}.mlp.{p}", "layers.{n}.mlp.{p}"),
    (tuple(f"blocks.{{n}}.heads.{h}" for h in range(HEADS)), "layers.{n}.q_proj", join(HEADS)),
    ("out", "head", TRANSPOSE),
    dead={"blocks.{n}.unused.{p}": "blocks.{n}.mlp.{p}"},
    ignored=("position_ids",),
    owner="test",
)


def checkpoint(layers=2):
    tensors = {"emb.weight": torch.randn(5, 4), "out": torch.randn(4, 7)}
    for layer in range(layers):
        for kind in ("mlp", "unused"):
            tensors[f"blocks.{layer}.{kind}.weight"] = torch.randn(4, 6)
            tensors[f"blocks.{layer}.{kind}.bias"] = torch.randn(4)
        tensors |= {f"blocks.{layer}.heads.{head}": torch.randn(2, 4) for head in range(HEADS)}
    return tensors


@given(layers=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_the_way_back_gives_the_same_tensors(layers):
    tensors = checkpoint(layers)
    ours = MAP.forward(tensors)
    assert set(ours) == {"embed_tokens.weight", "head"} | {
        f"layers.{layer}.{name}" for layer in range(layers) for name in ("mlp.weight", "mlp.bias", "q_proj")
    }
    back = MAP.backward(ours)
    assert back.keys() == tensors.keys()
    for key, value in tensors.items():
        assert torch.equal(back[key], torch.zeros_like(value) if ".unused." in key else value)
    again = MAP.forward(back)
    assert all(torch.equal(again[name], value) for name, value in ours.items())


def test_heads_are_joined_in_their_order():
    tensors = checkpoint()
    shuffled = dict(reversed(tensors.items()))
    expected = torch.cat([tensors[f"blocks.1.heads.{head}"] for head in range(HEADS)])
    assert torch.equal(MAP.forward(shuffled)["layers.1.q_proj"], expected)


def test_ignored_keys_may_be_there():
    tensors = checkpoint() | {"position_ids": torch.arange(4)}
    MAP.check(tensors, MAP.forward(tensors))
    assert "position_ids" not in MAP.backward(MAP.forward(tensors))


def test_every_offender_is_listed_with_the_nearest_match():
    good = checkpoint()
    parameters = MAP.forward(good)
    bad = dict(good)
    bad["blocks.0.mlp.wieght"] = bad.pop("blocks.0.mlp.weight")
    bad["nonsense"] = torch.zeros(1)
    del bad["blocks.1.heads.2"], bad["blocks.1.unused.bias"]
    bad["blocks.1.mlp.bias"] = torch.zeros(9)
    with pytest.raises(CheckpointKeysError) as caught:
        MAP.check(bad, parameters)
    error = caught.value
    assert error.unknown == ("blocks.0.mlp.wieght", "nonsense")
    assert error.missing == ("blocks.0.mlp.weight", "blocks.1.heads.2", "blocks.1.unused.bias")
    assert error.misshapen == ("blocks.1.mlp.bias",)
    assert "wieght; did you mean 'blocks.0.mlp.weight'?" in str(error)
    assert "blocks.1.mlp.bias has (9,), should have (4,)" in str(error)
    assert "\n" not in str(error)


def test_unmatched_keys_are_errors_in_both_directions():
    with pytest.raises(CheckpointKeysError, match=r"unknown \(1\): surplus"):
        MAP.forward(checkpoint() | {"surplus": torch.zeros(1)})
    with pytest.raises(CheckpointKeysError, match=r"unknown \(1\): layers.0.surplus"):
        MAP.backward(MAP.forward(checkpoint()) | {"layers.0.surplus": torch.zeros(1)})


def test_keys_are_matched_whole_and_letter_by_letter():
    tensors = dict.fromkeys(("x.emb.weight", "emb.weight.x", "emb.weight\n", "embxweight"), torch.zeros(1))
    with pytest.raises(CheckpointKeysError) as caught:
        KeyMap.of(("emb.weight", "e")).forward(dict(tensors))
    assert set(caught.value.unknown) == tensors.keys()


def test_a_placeholder_that_occurs_twice_stands_for_the_same():
    twice = KeyMap.of(("a.{n}.b.{n}", "x.{n}"))
    assert [*twice.forward({"a.12.b.12": torch.zeros(1)})] == ["x.12"]
    with pytest.raises(CheckpointKeysError, match=r"a\.1\.b\.2"):
        twice.forward({"a.1.b.2": torch.zeros(1)})


def test_values_that_do_not_fit_together_name_their_keys():
    tensors = checkpoint()
    tensors["blocks.0.heads.1"] = torch.zeros(2, 5)
    with pytest.raises(ConversionError, match=r"cannot join blocks\.0\.heads\.0, blocks\.0\.heads\.1"):
        MAP.forward(tensors)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a{n}", "b")], "different placeholders"),
        ([(("a{n}", "b"), ("c{n}", "d{n}"))], "different placeholders"),
        ([("a{x}", "b{x}")], "unknown placeholders"),
        ([(("a", "b"), "c", SAME)], "transform"),
    ],
)
def test_rows_that_cannot_be_read_backwards_are_refused(rows, message):
    with pytest.raises(KeyMapError, match=message):
        KeyMap.of(*rows)


def test_two_rows_for_one_key_are_refused():
    with pytest.raises(KeyMapError, match="2 rows match 'a1'"):
        KeyMap.of(("a{n}", "x{n}"), ("a1", "y")).forward({"a1": torch.zeros(1)})
    with pytest.raises(KeyMapError, match="several rows write"):
        KeyMap.of(("a", "x"), ("b", "x")).forward({"a": torch.zeros(1), "b": torch.zeros(1)})


def test_expected_keys_cost_no_memory():
    parameters = {"w": torch.empty(10**6, 10**6, device="meta")}
    assert KeyMap.of(("a", "w")).expected(parameters) == {"a": (10**6, 10**6)}
