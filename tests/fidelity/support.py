"""What the fidelity tests share: tolerances, conversions without dropout, comparison of outputs and gradients."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from oracles.weights import StateDict, gradients, probe, trainable
from torch import Tensor

import zoo
from zoo.converters import CONVERTERS
from zoo.models import ZooPreTrainedModel
from zoo.registry import VARIANTS

DTYPES = (torch.float64, torch.float32)
LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5}
GRADIENT_LIMIT = 1e-10
NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)


def difference(actual: Tensor, expected: Tensor) -> float:
    """The largest absolute difference; shapes, dtypes and places of NaN must agree."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert torch.equal(actual.isnan(), expected.isnan())
    return (actual - expected).detach().nan_to_num().abs().max().item()


def assert_equal(module: str, actual: Tensor, expected: Tensor) -> None:
    """Two tensors agree to the tolerance of their dtype."""
    found = difference(actual, expected)
    assert found <= LIMITS[actual.dtype], f"{module}: {found}"


def assert_gradients_equal(
    model: ZooPreTrainedModel,
    state_dict: StateDict,
    run: Callable[[ZooPreTrainedModel], Tensor],
    oracle: Callable[[StateDict], Tensor],
    without: set[str] = frozenset(),
) -> None:
    """Every key's gradient agrees, carried to the original's keys by the key map; `without` names those without any."""
    model.zero_grad(set_to_none=True)
    probe(run(model)).backward()
    weights = trainable(state_dict)
    expected = gradients(oracle(weights), weights)
    origin = next(name for name in CONVERTERS if CONVERTERS.get(name).variant == model.config.variant)
    key_map = CONVERTERS.get(origin).plan_back(type(model), model.config)
    parameters = dict(model.named_parameters())
    reached = {name: torch.ones_like(value) * (value.grad is not None) for name, value in parameters.items()}
    given = {name: torch.zeros_like(one) if one.grad is None else one.grad for name, one in parameters.items()}
    found = key_map.backward(given)
    reached = key_map.backward(reached)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        assert (gradient is None) == (key in without), key
        assert bool(reached[key].all()) == (key not in without), key
        if gradient is not None:
            scale = max(1.0, gradient.abs().max().item())
            assert difference(found[key], gradient) <= GRADIENT_LIMIT * scale, key


def all_but(variant: str, quirk: str) -> list[str]:
    """Every quirk of a variant except one."""
    quirks = VARIANTS.get(variant).quirks
    assert quirk in quirks
    return [name for name in quirks if name != quirk]


def with_and_without(variant: str, quirk: str, state_dict: StateDict, **hints: Any) -> tuple[Any, Any]:
    """One checkpoint converted with all quirks, and with all but one."""
    faithful = zoo.convert(state_dict, **hints)
    return faithful, zoo.convert(state_dict, **hints, quirks=all_but(variant, quirk))


def copies(state_dict: Mapping[str, Tensor]) -> StateDict:
    """A state_dict to scribble on; shared tensors stay shared."""
    seen: dict[int, Tensor] = {}
    return {key: seen.setdefault(id(value), value.clone()) for key, value in state_dict.items()}


def modes(model: ZooPreTrainedModel) -> Iterator[tuple[bool, ZooPreTrainedModel]]:
    """The model in evaluation and in training mode."""
    for training in (False, True):
        yield training, model.train(training)


def initialized(variant: str, *task: str, quirk: str = "torch-initialization") -> tuple[Any, Any]:
    """First stacks of two new models, with a quirk of their initialisation and without: networks that widen 64 to 256.

    With it weights and biases are drawn as PyTorch draws those of linear layers.
    """
    sizes = dict(vocab_size=400, hidden_size=64, num_hidden_layers=1, intermediate_size=256, seed=0)
    models = [zoo.build(variant, *task, quirks=quirks, **sizes) for quirks in ((quirk,), ())]
    on, off = (model if task else model.model.encoder for model in models)
    up = on.layers[0].mlp.up_proj
    assert 0 < up.bias.abs().max().item() <= 64**-0.5
    if quirk == "torch-initialization":
        assert 0.12 < up.weight.abs().max().item() <= 64**-0.5
    return on, off


def assert_the_future_is_seen_but_not_padding(variant: str, quirk: str) -> None:
    """A decoder that sees later tokens sees no padding, nor that of its source."""
    model = zoo.build(f"{variant}@tiny", quirks=quirk, vocab_size=20, seed=0)
    src, tgt = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 6))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    short = model(input_ids=src[:1], decoder_input_ids=tgt[:1, :4]).logits
    padded = model(input_ids=src, decoder_input_ids=tgt, decoder_attention_mask=mask).logits
    assert difference(padded[:1, :4], short) < 1e-5
    short = model(input_ids=src[:1, :3], decoder_input_ids=tgt[:1]).logits
    padded = model(input_ids=src, attention_mask=torch.tensor([[1, 1, 1, 0, 0], [1] * 5]), decoder_input_ids=tgt).logits
    assert difference(padded[:1], short) < 1e-5
