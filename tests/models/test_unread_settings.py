"""A setting that is given changes a model, is refused, or is reported: in every variant."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from models.test_pairs_of_parts import AXES

import zoo
from zoo.base.errors import ZooError, ZooWarning
from zoo.models.fields import SETTINGS
from zoo.models.parts import ATTENTIONS, FEED_FORWARDS, MIXERS, NORMS, POSITIONS, RESIDUALS
from zoo.registry import VARIANTS
from zoo.testing import randomize

BY_DAY = ("normformer", "odom-style", "rezero")

VALUES: dict[str, list[Any]] = {
    **{name: values for name, values in AXES.items() if name in SETTINGS},
    **{"attention": ATTENTIONS.names(), "feed_forward": FEED_FORWARDS.names(), "mixer": MIXERS.names()},
    **{"norm": NORMS.names(), "position": POSITIONS.names(), "residual": RESIDUALS.names()},
    **{"parallel_residual": [True, False], "final_norm": [True, False], "embedding_norm": [True, False]},
    **{"mlp_bias": [True, False], "attention_bias": [True, False], "attention_out_bias": [True, False]},
    **{"lm_head_bias": [True, False], "lm_head_transform": [True], "logit_scale": [0.5], "hidden_act": ["relu2"]},
    **{"num_key_value_heads": [1], "sliding_window": [2], "nope_layers": [[0]], "embedding_size": [16]},
    **{"decoder_layers": [1], "decoder_attention_heads": [1], "type_vocab_size": [3], "decoder_vocab_size": [77]},
    **{"intermediate_size": [48], "decoder_intermediate_size": [48], "layer_norm_eps": [0.1], "head_dim": [6]},
    **{"sinusoidal_theta": [7.0], "final_logit_softcapping": [0.3], "attention_scale": [0.3]},
}
"""Settings and values that are tried in every variant."""

EQUAL = {
    "norm=zero-centered-rmsnorm",  # as RMSNorm, with weights around 0
    "zero-centered-rmsnorm:norm=rmsnorm",
    "attention=masked-rows-uniform",  # as multi-head where no row is masked
    "position=learned-unpadded",  # as learned positions where there is no padding
    "residual=no-first-norm",  # as the plain sum where no norm precedes a sublayer
    "lfm2-style@tiny:attention=value-residual",  # which has one layer of attention
}
"""Values that compute the same as others by definition."""

ON_THE_SPHERE = {"norm_placement", "scale_embedding", "layer_norm_eps", "final_norm"}
"""Settings that change nothing where every vector is normalised (nGPT)."""


def computed(name: str, task: str) -> tuple[list[tuple[str, torch.Size]], torch.Tensor]:
    """Names and shapes of the parameters of a model, and what it computes."""
    model = randomize(zoo.build(name, task, seed=0, dtype=torch.float64, vocab_size=100), std=0.3)
    ids = torch.arange(5, 13)[None]
    inputs = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        output = model(input_ids=ids, **inputs)
    return [(key, value.shape) for key, value in model.named_parameters()], output[0]


def names_with_settings(name: str, task: str) -> Iterator[str]:
    """The variant with each of the values, where it has another one."""
    usual = zoo.config(name, task)
    for field, values in VALUES.items():
        for value in values:
            setting = f"{field}={f'[{value[0]}]' if isinstance(value, list) else value}"
            is_equal = {setting, f"{name}:{setting}", f"{usual.norm}:{setting}"} & EQUAL
            is_equal = is_equal or (usual.norm == "unit" and field in ON_THE_SPHERE)
            if value != getattr(usual, field) and not is_equal:
                yield f"{name}:{setting}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in BY_DAY else pytest.mark.nightly) for n in VARIANTS])
def test_no_setting_is_ignored_in_silence(name: str) -> None:
    task = VARIANTS.get(name).default_task
    shapes, output = computed(f"{name}@tiny", task)
    silent = []
    for changed in names_with_settings(f"{name}@tiny", task):
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always", ZooWarning)
            try:
                other_shapes, other = computed(changed, task)
            except ZooError:
                continue
        if other_shapes == shapes and torch.equal(other, output) and not reported:
            silent.append(changed)
    assert not silent
