"""Dropout of few random bits: the rate asked for, and in a model the same as PyTorch's but for the numbers drawn."""

import pytest
import torch
from every_variant import EACH, ONE_TASK
from torch import Tensor
from torch.nn import functional as F

import zoo
from zoo.fast import modules as dropping
from zoo.fast.attention_backends import dropping_attention
from zoo.fast.modules import Dropout, dropout, noise_like
from zoo.fast.switches import fast_paths

SIZE = 1 << 18


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_every_element_is_dropped_as_often_as_asked(p):
    """Elements share the numbers that are drawn: each place in one, each neighbour, each row has the rate."""
    torch.manual_seed(0)
    dropped = (noise_like(torch.empty(SIZE), p) == 0).double()
    error = 4 * (p * (1 - p) / (SIZE // 4)) ** 0.5
    for place in range(4):
        assert dropped[place::4].mean().item() == pytest.approx(p, abs=error)
    for distance in (1, 2, 3, 4, 8):
        together = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert together == pytest.approx(p**2, abs=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_stays_keeps_the_expectation(dtype):
    states = torch.full((SIZE + 3,), 2.0, dtype=dtype)
    torch.manual_seed(0)
    dropped = dropout(states, 0.25, training=True)
    assert dropped.dtype == dtype
    assert sorted(set(dropped.tolist())) == [0.0, pytest.approx(2 / 0.75, rel=4e-3)]
    assert dropped.double().mean().item() == pytest.approx(2.0, abs=0.02)


def test_a_rate_is_a_whole_number_of_levels_by_which_the_rest_is_scaled():
    torch.manual_seed(0)
    noise = noise_like(torch.empty(16 * SIZE, dtype=torch.float64), 1.4 / 65536)
    assert int((noise == 0).sum()) == pytest.approx(64, abs=32) and noise.max().item() == 65536 / 65535


def test_gradients_are_dropped_with_their_elements():
    states = torch.randn(100, 100, requires_grad=True)
    dropped = dropout(states, 0.3, training=True)
    dropped.sum().backward()
    assert torch.equal(states.grad == 0, dropped == 0)
    torch.testing.assert_close(states.grad * states, dropped)


def test_numbers_come_from_pytorchs_generator():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(Dropout(0.5)(torch.ones(64, 64)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("states", "p", "mode"),
    [
        (torch.ones(64, 64), 0.5, "never"),
        (torch.ones(10), 0.5, "auto"),
        (torch.ones(64, 64), 0.0, "always"),
        (torch.ones(64, 64), 1.0, "always"),
        (torch.ones(64, 64), 1e-6, "always"),
        (torch.ones(64, 64, device="meta"), 0.5, "always"),
    ],
    ids=["switched off", "few elements", "none dropped", "all dropped", "below a bit", "no CPU"],
)
def test_elsewhere_it_is_pytorchs(monkeypatch, states, p, mode):
    monkeypatch.setattr(dropping, "noise_like", None)
    with fast_paths(quick_dropout=mode):
        torch.manual_seed(0)
        dropped = dropout(states, p, training=True)
        torch.manual_seed(0)
        expected = F.dropout(states, p)
    assert dropped.device.type == "meta" or torch.equal(dropped, expected)


def test_nothing_is_dropped_in_evaluation():
    states = torch.ones(64, 64)
    assert Dropout(0.5).eval()(states) is states


def test_vectorised_functions_draw_for_themselves():
    rows = torch.func.vmap(lambda row: dropout(row, 0.5, training=True), randomness="different")(torch.ones(2, 4096))
    assert not torch.equal(rows[0], rows[1])


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("kind", ["causal", "bool", "float", "all"])
def test_attention_written_out_is_pytorchs(kind, key_heads):
    torch.manual_seed(0)
    shape = {"query": (2, 4, 5, 8), "key": (2, key_heads, 5, 8), "value": (2, key_heads, 5, 8)}
    states = {name: torch.randn(size, dtype=torch.float64) for name, size in shape.items()}
    mask = {"bool": torch.rand(2, 1, 5, 5) > 0.5, "float": torch.randn(2, 1, 5, 5).double()}.get(kind)
    if kind == "bool":
        mask |= torch.eye(5, dtype=torch.bool)
    module = torch.nn.Module()
    mixed, _ = dropping_attention(module, **states, attention_mask=mask, scaling=0.3, is_causal=kind == "causal")
    expected = F.scaled_dot_product_attention(
        *states.values(), mask, is_causal=kind == "causal", scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(mixed, expected.transpose(1, 2))


@pytest.mark.parametrize("unpadding", ["always", "never"])
@pytest.mark.parametrize("name", EACH)
def test_a_training_step_differs_by_the_numbers_alone(monkeypatch, name, unpadding):
    """Given PyTorch's numbers, loss and gradients are PyTorch's to rounding, with attention's weights among all."""
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.3)
    if name == "diff-transformer":
        del rates["attention_dropout"]  # which it refuses
    alternate = ("gemma2-style", "kimi-linear-style", "lfm2-style", "qwen3-next-style")
    layers = 2 if name in alternate else 1
    sizes = f"hidden_size=16,intermediate_size=32,num_attention_heads=4,num_hidden_layers={layers}"
    model = zoo.build(f"{name}:{sizes}", ONE_TASK[name], vocab_size=20, seed=0, **rates).double().train()
    tokens = torch.randint(4, 20, (3, 9))
    is_token = torch.ones_like(tokens)
    is_token[1, 5:] = is_token[2, 7:] = 0
    inputs = {"input_ids": tokens, "attention_mask": is_token, "labels": tokens.masked_fill(is_token == 0, -100)}
    drawn = []

    def noise(states: Tensor, p: float) -> Tensor:
        drawn.append(p)
        return F.dropout(torch.ones_like(states), p)

    monkeypatch.setattr(dropping, "noise_like", noise)
    found = {}
    for mode in ("never", "always"):
        if mode == "always" and "attention_dropout" in rates:  # PyTorch's attention would draw by itself
            monkeypatch.setattr(F, "scaled_dot_product_attention", None)
        with fast_paths(quick_dropout=mode, unpadding=unpadding):
            torch.manual_seed(0)
            model.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            found[mode] = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
            found[mode]["loss"] = loss.detach()
        assert bool(drawn) == (mode == "always")
    torch.testing.assert_close(found["always"], found["never"])
