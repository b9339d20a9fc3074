"""Activations are parts: one registry, by which configurations are checked and models built, and exports refused."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

import zoo
from zoo.base.errors import MissingPluginError
from zoo.converters.planning import plan_engines, plan_export
from zoo.models import ACTIVATIONS, ZooConfig
from zoo.registry.plugins import Origin
from zoo.registry.table import Entry

TINY = {"vocab_size": 23, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 12}


class Cube(nn.Module):
    """The third power."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x**3


@pytest.fixture(autouse=True)
def cube(monkeypatch):
    """An activation of a plugin's distribution."""
    made = Entry("cube", Cube, Origin("zoo_cube", "zoo-cube"), None)
    monkeypatch.setattr(
        ACTIVATIONS, "_items", {**dict.fromkeys(ACTIVATIONS.names()), **ACTIVATIONS._items, "cube": made}
    )


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("causal-lm", {"hidden_act": "cube"}),
        ("causal-lm", {"hidden_act": "cube", "feed_forward": "gated"}),
        ("causal-lm", {"hidden_act": "cube", "feed_forward": "moe", "num_experts": 2}),
        ("masked-lm", {"hidden_act": "cube", "lm_head_transform": True}),
        ("sequence-classification", {"classifier_pooler_act": "cube"}),
    ],
)
def test_an_activation_of_a_plugin_is_one_everywhere(task, settings):
    model = zoo.build("pre-norm", task, seed=0, **TINY, **settings)
    assert any(isinstance(module, Cube) for module in model.modules())
    assert model(torch.tensor([[3, 4, 5]])).logits.isfinite().all()
    (field,) = (name for name, value in settings.items() if value == "cube")
    assert model.config.providers == {field: "zoo-cube"}


def test_every_activation_of_transformers_is_one():
    assert {name for name in ACTIVATIONS if ACTIVATIONS.origin(name).built_in} == set(ACT2FN)


@pytest.mark.parametrize("name", ["prelu", "xielu"])
def test_weights_of_activations_have_the_dtype_of_the_model(name):
    model = zoo.build("pre-norm", "causal-lm", hidden_act=name, **TINY)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("field", ["hidden_act", "classifier_pooler_act"])
def test_a_checkpoint_names_the_plugin_of_its_activation(field, monkeypatch):
    saved = zoo.config("pre-norm", **{field: "cube"}).to_dict()
    monkeypatch.delitem(ACTIVATIONS._items, "cube")
    with pytest.raises(MissingPluginError, match="activation 'cube' comes from the plugin 'zoo-cube'"):
        ZooConfig.from_dict(saved)


@pytest.mark.parametrize("variant", ["gpt2-style", "llama-style"])
def test_no_class_and_no_engine_takes_it_for_another(variant):
    model = zoo.build(variant, "causal-lm", **TINY, hidden_act="cube")
    plans = [plan for plan in (*plan_export(model), *plan_engines(model)) if plan.route is not None]
    assert len(plans) > 30
    for plan in plans:
        assert any("hidden_act='cube'" in obstacle for obstacle in plan.obstacles), plan
