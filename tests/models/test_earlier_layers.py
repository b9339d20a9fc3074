"""Layers that read what earlier ones keep: value residual and shared keys and values."""

from typing import Any

import pytest
import torch
from models.formulas import LENGTH, WIDTH, config, random, randomized

import zoo
from zoo.base.errors import ConfigError, InputError, UnsupportedOperationError
from zoo.models.attention import build_attention

DEPTH = 3
SHARED = "llama-style@tiny:attention=kv-sharing,num_hidden_layers=4,num_kv_shared_layers=2"
WINDOWS = SHARED.replace("llama-style", "gpt-oss-style")


def layers_of(**settings: Any) -> list[Any]:
    made = config(num_hidden_layers=DEPTH, **settings)
    return [randomized(build_attention(made, place, is_causal=True), seed=place) for place in range(DEPTH)]


@pytest.mark.parametrize("settings", [{"attention": "value-residual"}, {"attention": "kv-sharing"}], ids=str)
def test_a_layer_that_reads_another_is_refused_by_itself(settings: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=f"layer {DEPTH - 1} of attention='{settings['attention']}' was called by itself"
    ):
        layers_of(**settings)[-1](random(LENGTH, WIDTH)[None])


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


def test_reentrant_checkpointing_is_refused_by_name() -> None:
    model = zoo.build("value-residual@tiny:vocab_size=20")
    with pytest.raises(UnsupportedOperationError, match="use_reentrant=True was given, which loses gradients"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})


HYBRID = "llama-style@tiny:mixer=short-conv,num_hidden_layers=5"


def test_the_first_values_are_those_of_the_first_layer_with_attention() -> None:
    model = zoo.build(f"{HYBRID},attention=value-residual")
    assert [getattr(layer.self_attn, "mixes", None) for layer in model.model.layers] == [None, False, None, True, None]


def test_a_mixer_among_layers_that_share_keeps_its_state() -> None:
    config = zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=2")
    assert config.kv_sharing_modes == [None, "store", None, "reuse", None]
    with pytest.raises(ConfigError, match="attention='kv-sharing' was given with mixer='short-conv'.*has attention"):
        zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=1")
