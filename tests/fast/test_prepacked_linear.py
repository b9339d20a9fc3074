"""Weights that are prepacked for the few rows of a decode step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from zoo.fast import prepacked_linear
from zoo.fast.graph_capture import CapturedGraph, capture, compile_graph
from zoo.fast.matmul import EXACT
from zoo.fast.prepacked_linear import Prepacking, prepacking_of, try_prepacked

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this build of PyTorch has no MKL")


class Sublayer(nn.Module):
    """Three projections of one input, one of another."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, width, bias=bias) for width in (8, 24, 8))
        self.last = nn.Linear(8, 16, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        mixed = self.first(states).view(*states.shape[:-1], 2, 4) * self.second(states)[..., :1, None]
        return self.last(mixed.flatten(-2) + self.third(states))


def prepacked(sublayer: nn.Module, states: Tensor) -> tuple[CapturedGraph, Prepacking | None]:
    captured = capture(lambda states, length: (sublayer(states),), [states], [None], {"length": 5})
    return captured, prepacking_of(captured, everywhere=True)


@pytest.mark.parametrize("rows", [(1, 1), (8, 1), (3, 2)])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_products_are_the_same(rows, bias):
    torch.manual_seed(0)
    sublayer, states = Sublayer(bias), torch.randn(*rows, 16)
    captured, prepacking = prepacked(sublayer, states)
    assert [len(product.nodes) for product in prepacking.layers] == [3, 1]
    assert {product.rows for product in prepacking.layers} == {rows[0] * rows[1]}
    weights = prepacking.prepack(captured.constants).tensors
    (found,) = prepacking.program(states, 5, *captured.constants, *weights)
    torch.testing.assert_close(found, sublayer(states), rtol=EXACT, atol=EXACT)
    sublayer.second.weight.mul_(2)
    (unchanged,) = prepacking.program(states, 5, *captured.constants, *weights)
    assert torch.equal(unchanged, found), "prepacked weights were not read"
    (plain,) = compile_graph(captured.graph)(states, 5, *captured.constants)
    torch.testing.assert_close(plain, sublayer(states), rtol=0, atol=0)


@torch.no_grad()
def test_only_float32_weights_are_prepacked():
    sublayer = Sublayer(bias=True).double()
    assert prepacked(sublayer, torch.randn(2, 1, 16, dtype=torch.float64))[1] is None


@torch.no_grad()
def test_nothing_is_weights_without_mkl_or_memory(monkeypatch):
    captured, prepacking = prepacked(Sublayer(bias=True), torch.randn(2, 1, 16))
    assert prepacking is not None
    with monkeypatch.context() as patch:
        patch.setattr(prepacked_linear, "memory_of_machine", lambda: 1000)
        assert prepacking_of(captured, everywhere=True) is None
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert prepacking_of(captured, everywhere=True) is None


@torch.no_grad()
def test_a_trial_tells_speed_and_exactness():
    captured, prepacking = prepacked(Sublayer(bias=True), torch.randn(4, 1, 16))
    trial = try_prepacked(prepacking.layers[0], captured.constants)
    assert trial.gain > 0 and 0 <= trial.deviation < EXACT
    assert trial is try_prepacked(prepacking.layers[0], captured.constants), "the trial was made twice"
    assert trial.pays == (trial.gain >= prepacked_linear.PAYS)
