"""Every variant, part and placement of the library against its plain form, in float64 and in whole models."""

from typing import Any

import pytest
import torch
from every_variant import EVERY_TIME
from torch import nn

import zoo
from zoo.analysis.eject.ejecting import MODELS
from zoo.analysis.eject.proof import NAMES, inputs_of, randomise
from zoo.analysis.eject.running import first
from zoo.analysis.eject.settings import plain_config
from zoo.analysis.plain import classifiers, heads
from zoo.base.errors import ZooError
from zoo.models.parts import PART_FIELDS
from zoo.registry import describe, list_variants

TASKS = ("seq2seq-lm", "causal-lm", "masked-lm")
TOGETHER = {"position=disentangled": "position=disentangled,attention=disentangled"}  # Parts that need another one
PARTS = [f"{field}={part}" for field, registry in PART_FIELDS.items() for part in registry.names() if part != "mup"]
PARTS = [TOGETHER.get(part, part) for part in PARTS]
PLACEMENTS = [f"norm_placement={one}" for one in ("post", "pre", "sandwich", "res-post", "deepnorm", "none")]
SETTINGS = [
    *PLACEMENTS,
    *(f"{one},residual_scaling={scaling}" for one in PLACEMENTS for scaling in ("rezero", "layer-scale")),
    *("num_key_value_heads=1", "num_key_value_heads=2", "attention_scale=hidden-size", "attention_scale=none"),
    *("attention_scale=2.5", "attn_logit_softcapping=0.8", "attention_bias=False"),
    *("attention_bias=False,attention_out_bias=True", "qk_norm=head,norm=rmsnorm", "qk_norm=full", "sliding_window=3"),
    *("feed_forward=gated,hidden_act=silu", "feed_forward=gated,mlp_bias=False", "parallel_residual=True"),
    "attention=exclusive,num_key_value_heads=2",
    *("attention=value-embeddings,num_key_value_heads=1", "attention=kv-sharing,num_kv_shared_layers=1"),
    "residual=attention-residuals,layers_per_block=2,num_hidden_layers=3",
    "position=learned,embedding_norm=True",
]


def plain_of(model: Any, task: str) -> nn.Module:
    """The plain form of a model, with its weights."""
    plain: nn.Module = (vars(heads) | vars(classifiers))[MODELS[task]](plain_config(model.config, task)).double()
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def check(name: str, task: str) -> None:
    model = zoo.build(name, task, seed=0, dropout=0.0, vocab_size=50)
    randomise(model)
    inputs, _, padded = inputs_of(model.double().eval(), task)
    given = {NAMES.get(key, key): value for key, value in inputs.items() if padded or key != "attention_mask"}
    with torch.no_grad():
        found, expected = model(**inputs, use_cache=False).logits, first(plain_of(model, task)(**given))
    if task in ("masked-lm", "token-classification"):
        found, expected = (one[inputs["attention_mask"].bool()] for one in (found, expected))
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-11)


def is_for(settings: str, task: str) -> bool:
    try:
        zoo.config(f"pre-norm@tiny:{settings}", task)
    except ZooError:
        return False
    return True


@pytest.mark.parametrize("at_night", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("settings", [*PARTS, *SETTINGS])
def test_a_part_computes_what_its_plain_form_does(settings: str, at_night: bool) -> None:
    """In the first stack that takes it, most often an encoder and a decoder; at night in the others."""
    first, *others = [task for task in TASKS if is_for(settings, task)]
    for task in others if at_night else [first]:
        check(f"pre-norm@tiny:{settings}", task)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(f"{name}@tiny", task, marks=() if (name, task) in EVERY_TIME else pytest.mark.nightly)
        for name in list_variants()
        for task in describe(name).tasks
        if task in MODELS
    ]
    + [("pre-norm@tiny:classifier_positions=4,classifier_pooling=last,num_labels=3", "sequence-classification")],
)
def test_a_variant_computes_what_its_plain_form_does(name: str, task: str) -> None:
    check(name, task)
