"""Layers that read what earlier ones keep: value residual and shared keys and values, against loops in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.formulas import HEAD, LENGTH, WIDTH, close, config, random, randomized
from models.test_attention_parts import causal_mask, mixed, outputs, split, weights_of
from torch import Tensor

import zoo
from zoo.base.errors import ConfigError, InputError, UnsupportedOperationError
from zoo.converters.errors import ExportError
from zoo.models.attention import build_attention
from zoo.models.context import EarlierLayers
from zoo.testing import Case, cases

DEPTH = 3
SHARED = "llama-style@tiny:attention=kv-sharing,num_hidden_layers=4,num_kv_shared_layers=2"
WINDOWS = SHARED.replace("llama-style", "gpt-oss-style")


def attend(attention: Any, query: list[Any], key: list[Any], value: list[Any]) -> Tensor:
    heads = [
        [mixed(weights_of(query[h][i], key[h][: i + 1]), value[h][: i + 1]) for h in range(len(query))]
        for i in range(LENGTH)
    ]
    return outputs(attention, torch.tensor(heads, dtype=torch.float64))


def layers_of(**settings: Any) -> list[Any]:
    made = config(num_hidden_layers=DEPTH, **settings)
    return [randomized(build_attention(made, place, is_causal=True), seed=place) for place in range(DEPTH)]


def test_values_are_mixed_with_those_of_the_first_layer() -> None:
    """Zhou et al. 2024: every later layer attends to lambda_1 v_1 + lambda_2 v_n."""
    earlier, first = EarlierLayers(), torch.empty(0)
    for place, attention in enumerate(layers_of(attention="value-residual")):
        x = random(LENGTH, WIDTH, seed=20 + place)
        query, key, value = (split(getattr(attention, f"{name}_proj"), x, HEAD) for name in "qkv")
        own = torch.tensor(value, dtype=torch.float64)
        if place == 0:
            first = own
        else:
            one, two = attention.value_lambdas.tolist()
            own = one * first + two * own
        close(
            attention(x[None], causal_mask(), earlier=earlier)[0][0], attend(attention, query, key, own.tolist()), 1e-10
        )


@pytest.mark.parametrize("settings", [{"attention": "value-residual"}, {"attention": "kv-sharing"}], ids=str)
def test_a_layer_that_reads_another_is_refused_by_itself(settings: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=f"layer {DEPTH - 1} of attention='{settings['attention']}' was called by itself"
    ):
        layers_of(**settings)[-1](random(LENGTH, WIDTH)[None], causal_mask())


def test_later_layers_attend_to_keys_and_values_of_an_earlier_one() -> None:
    earlier, layers = EarlierLayers(), layers_of(attention="kv-sharing", num_kv_shared_layers=1)
    inputs = [random(LENGTH, WIDTH, seed=20 + place) for place in range(DEPTH)]
    for place, attention in enumerate(layers):
        source = min(place, 1)
        query = split(attention.q_proj, inputs[place], HEAD)
        key, value = (split(getattr(layers[source], f"{name}_proj"), inputs[source], HEAD) for name in "kv")
        close(
            attention(inputs[place][None], causal_mask(), earlier=earlier)[0][0],
            attend(attention, query, key, value),
            1e-10,
        )
    assert {name for name, _ in layers[2].named_parameters()} == {
        f"{name}_proj.{kind}" for name in "qo" for kind in ("weight", "bias")
    }


def test_a_new_value_residual_takes_the_mean() -> None:
    model = zoo.build("value-residual@tiny")
    assert [layer.self_attn.value_lambdas.tolist() for layer in model.model.layers[1:]] == [[0.5, 0.5]]


@pytest.mark.parametrize("name", [SHARED, WINDOWS], ids=["alike", "windows"])
def test_layers_that_share_cache_nothing(name: str) -> None:
    model = zoo.build(name, seed=0)
    cache = model(torch.arange(3, 8)[None], use_cache=True).past_key_values
    assert [layer.keys is not None for layer in cache.layers] == [True, True, False, False][: len(cache.layers)]
    first = None if name == SHARED else "store"
    assert model.config.kv_sharing_modes == [first, "store", "reuse", "reuse"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "value-residual", "share_layers": True}, "its layers cannot be one"),
        ({"attention": "kv-sharing", "share_layers": True}, "its layers cannot be one"),
        ({"attention": "kv-sharing", "num_kv_shared_layers": 2}, "needs an earlier one of its type"),
        ({"attention": "kv-sharing", "num_kv_shared_layers": -1}, "needs an earlier one of its type"),
    ],
)
def test_what_cannot_be_shared_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        zoo.config("pre-norm@tiny", num_hidden_layers=2, **settings)


def test_reentrant_checkpointing_and_graphs_are_refused_by_name(tmp_path: Path) -> None:
    model = zoo.build("value-residual@tiny:vocab_size=20")
    with pytest.raises(UnsupportedOperationError, match="use_reentrant=True was given, which loses gradients"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    with pytest.raises(ExportError, match="caches no keys and values of every layer"):
        zoo.export(zoo.build("llama-style@tiny:attention=kv-sharing,vocab_size=20"), tmp_path / "onnx", target="onnx")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        case
        for name in (SHARED, WINDOWS, "post-norm:attention=value-residual")
        for case in cases(name)
        if case.task in ("causal-lm", "seq2seq-lm")
    ],
    ids=str,
)
def test_every_variant_whose_layers_read_earlier_ones(case: Case) -> None:
    case()


HYBRID = "llama-style@tiny:mixer=short-conv,num_hidden_layers=5"


def test_the_first_values_are_those_of_the_first_layer_with_attention() -> None:
    model = zoo.build(f"{HYBRID},attention=value-residual")
    assert [getattr(layer.self_attn, "mixes", None) for layer in model.model.layers] == [None, False, None, True, None]


def test_a_mixer_among_layers_that_share_keeps_its_state() -> None:
    config = zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=2")
    assert config.kv_sharing_modes == [None, "store", None, "reuse", None]
    with pytest.raises(ConfigError, match="attention='kv-sharing' was given with mixer='short-conv'.*has attention"):
        zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=1")
