"""Weights that are laid out for the few rows of a step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zoo.fast import prepacked_linear
from zoo.fast.graph_capture import Recording, record, written_down
from zoo.fast.matmul import EXACT
from zoo.fast.prepacked_linear import Packing, packing_of, try_packed

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this build of PyTorch has no MKL")


class Sublayer(nn.Module):
    """Three projections of one input, one of another."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, width, bias=bias) for width in (8, 24, 8))
        self.last = nn.Linear(8, 16, bias=bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        mixed = self.first(states).view(*states.shape[:-1], 2, 4) * self.second(states)[..., :1, None]
        return self.last(mixed.flatten(-2) + self.third(states))


def recorded(sublayer: nn.Module, states: torch.Tensor) -> tuple[Recording, Packing | None]:
    recording = record(lambda states, length: (sublayer(states),), [states], [None], {"length": 5})
    return recording, packing_of(recording, everywhere=True)


@pytest.mark.parametrize("rows", [(1, 1), (8, 1), (3, 2)])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_products_are_the_same(rows, bias):
    torch.manual_seed(0)
    sublayer, states = Sublayer(bias), torch.randn(*rows, 16)
    recording, packing = recorded(sublayer, states)
    assert [len(product.nodes) for product in packing.products] == [3, 1]
    assert {product.rows for product in packing.products} == {rows[0] * rows[1]}
    laid_out = packing.pack(recording.constants)
    (found,) = packing.program(states, 5, *recording.constants, *laid_out)
    torch.testing.assert_close(found, sublayer(states), rtol=EXACT, atol=EXACT)
    sublayer.second.weight.mul_(2)
    (unchanged,) = packing.program(states, 5, *recording.constants, *laid_out)
    assert torch.equal(unchanged, found), "weights were not read from where they were laid out"
    (plain,) = written_down(recording.graph)(states, 5, *recording.constants)
    torch.testing.assert_close(plain, sublayer(states), rtol=0, atol=0)


@torch.no_grad()
def test_only_float32_weights_are_laid_out():
    sublayer = Sublayer(bias=True).double()
    assert recorded(sublayer, torch.randn(2, 1, 16, dtype=torch.float64))[1] is None


@torch.no_grad()
def test_nothing_is_laid_out_without_mkl_or_memory(monkeypatch):
    recording, packing = recorded(Sublayer(bias=True), torch.randn(2, 1, 16))
    assert packing is not None
    with monkeypatch.context() as patch:
        patch.setattr(prepacked_linear, "memory_of_machine", lambda: 1000)
        assert packing_of(recording, everywhere=True) is None
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert packing_of(recording, everywhere=True) is None


@torch.no_grad()
def test_a_trial_tells_speed_and_exactness():
    recording, packing = recorded(Sublayer(bias=True), torch.randn(4, 1, 16))
    trial = try_packed(packing.products[0], recording.constants)
    assert trial.gain > 0 and 0 <= trial.deviation < EXACT
    assert trial is try_packed(packing.products[0], recording.constants), "the trial was made twice"
    assert trial.pays == (trial.gain >= prepacked_linear.PAYS)
