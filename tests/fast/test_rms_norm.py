"""The root-mean-square norm of few operations against PyTorch's, in values and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import zoo
from zoo.fast.rms_norm import rms_norm

EPS = 1e-6
SHAPES: dict[str, tuple[int, ...]] = {
    "token": (1, 1, 80),
    "tokens": (4, 33, 80),
    "heads": (2, 5, 4, 16),
    "none": (0, 8),
}


def pytorchs(states: Tensor, weight: Tensor | None, eps: float = EPS) -> Tensor:
    return F.rms_norm(states, states.shape[-1:], weight, eps)


def inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, grad: bool = True) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    states = 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1
    weight = torch.randn(shape[-1], generator=generator, dtype=torch.float64)
    return states.to(dtype).requires_grad_(grad), weight.to(dtype).requires_grad_(grad)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_pytorchs(dtype: torch.dtype, shape: tuple[int, ...], weighted: bool) -> None:
    states, weight = inputs(shape, dtype)
    given = (states, weight) if weighted else (states,)
    exact = tuple(one.detach().double().requires_grad_() for one in given)
    found, expected = (
        rms_norm(states, weight if weighted else None, EPS),
        pytorchs(*exact, *(() if weighted else (None,))),
    )
    upstream = torch.randn(shape, dtype=torch.float64)
    tolerance: dict[str, Any] = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 2e-5, "check_dtype": False}
    torch.testing.assert_close(found, expected, **tolerance)
    with torch.no_grad():
        assert torch.equal(rms_norm(states, weight if weighted else None, EPS), found)
    gradients = torch.autograd.grad(found, given, upstream.to(dtype))
    for gradient, right in zip(gradients, torch.autograd.grad(expected, exact, upstream), strict=True):
        torch.testing.assert_close(gradient, right, **tolerance)


def test_rows_of_zeros_and_of_huge_values_are_normalised() -> None:
    states = torch.zeros(2, 8).requires_grad_()
    assert not rms_norm(states, None, EPS).any()
    gradient = torch.autograd.grad(rms_norm(states, None, EPS).sum(), states)[0]
    torch.testing.assert_close(gradient, torch.full((2, 8), EPS**-0.5))
    torch.testing.assert_close(rms_norm(torch.full((1, 8), 1e15), None, EPS), torch.ones(1, 8))


@pytest.mark.parametrize("frozen", ["states", "weight"])
def test_a_frozen_input_gets_no_gradient(frozen: str) -> None:
    given = dict(zip(("states", "weight"), inputs((3, 7, 16)), strict=True))
    given[frozen].requires_grad_(False)
    (learned,) = (one for name, one in given.items() if name != frozen)
    found, expected = (
        torch.autograd.grad(function(given["states"], given["weight"], EPS).square().sum(), learned)
        for function in (rms_norm, pytorchs)
    )
    torch.testing.assert_close(found, expected)
    rms_norm(given["states"], given["weight"], EPS).sum().backward()
    assert given[frozen].grad is None


def test_second_derivatives_and_transforms_of_functions_are_right() -> None:
    states, weight = inputs((2, 3, 5))
    assert torch.autograd.gradcheck(lambda *given: rms_norm(*given, EPS), (states, weight))
    assert torch.autograd.gradgradcheck(lambda *given: rms_norm(*given, EPS), (states, weight))
    assert torch.autograd.gradgradcheck(lambda states: rms_norm(states, None, EPS), (states,))
    found, expected = (torch.func.jacfwd(norm)(states, weight, EPS) for norm in (rms_norm, pytorchs))
    torch.testing.assert_close(found, expected)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(states.detach(), states.detach())
        tangents = [
            torch.autograd.forward_ad.unpack_dual(norm(dual, weight, EPS)).tangent for norm in (rms_norm, pytorchs)
        ]
    torch.testing.assert_close(*tangents)


@pytest.mark.parametrize("norm", ["rmsnorm", "zero-centered-rmsnorm"])
def test_a_step_of_a_model_runs_the_kernel_of_layer_norms_gradients(norm: str) -> None:
    model = zoo.build("llama-style@tiny", seed=0, vocab_size=20, norm=norm)
    ids = torch.tensor([[1, 5, 6, 7]])
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        model(input_ids=ids, labels=ids).loss.backward()
    names = {event.name for event in profiled.events()}
    assert "aten::native_layer_norm_backward" in names
    assert "aten::rms_norm" not in names


@pytest.mark.parametrize("norm", ["rmsnorm", "zero-centered-rmsnorm"])
def test_statistics_of_16_bits_are_computed_in_float32(norm: str) -> None:
    module = zoo.build("llama-style@tiny", seed=0, vocab_size=20, norm=norm).bfloat16().model.norm
    states = 300 * torch.randn(2, 3, module.weight.numel(), dtype=torch.bfloat16)
    factors = module.weight.float() + (norm != "rmsnorm")
    expected = pytorchs(states.float(), factors)
    torch.testing.assert_close(module(states), expected.bfloat16(), rtol=2**-7, atol=0)
