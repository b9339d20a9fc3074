"""Every setting is used: changing it changes the parameters, or the output of the same parameters."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedConfig

import zoo
from zoo.models import FEED_FORWARDS, INITIALIZERS, MIXERS, NORMS, POSITIONS, RESIDUALS, ZooConfig, ZooPreTrainedModel
from zoo.models.choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling
from zoo.models.fields import SETTINGS, Fields
from zoo.testing import randomize, token_ids

BASE: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
LENGTH = 12

READ_BY_ALL = [name for name in POSITIONS.names() if not POSITIONS.get(name).read_by]
RELATIVE = {"position": "disentangled", "attention": "disentangled", "relative_attention_max_distance": 40}

ROPE = {"rope_type": "default", "rope_theta": 10000.0}

EVERY_STACK = "causal-lm masked-lm seq2seq-lm"

# A field, tasks, settings of both models, and values of the field: no two models may be alike.
SWITCHES: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("vocab_size", "causal-lm", {}, [37, 40]),
    ("type_vocab_size", "masked-lm", {}, [None, 2, 3]),
    ("decoder_vocab_size", "seq2seq-lm", {}, [None, 40]),
    ("hidden_size", "causal-lm", {}, [32, 40]),
    ("embedding_size", "causal-lm", {}, [None, 16, 32]),
    ("embedding_size", "masked-lm", {"lm_head_transform": True, "tie_word_embeddings": True}, [None, 16, 32]),
    ("embedding_size", "seq2seq-lm", {}, [None, 16]),
    ("num_hidden_layers", "causal-lm", {}, [2, 3]),
    ("decoder_layers", "seq2seq-lm", {}, [None, 3]),
    ("num_attention_heads", "causal-lm", {}, [4, 2, 8]),
    ("decoder_attention_heads", "seq2seq-lm", {}, [None, 2]),
    ("num_key_value_heads", "causal-lm seq2seq-lm", {}, [None, 2, 1]),
    ("head_dim", "causal-lm", {}, [None, 16]),
    ("intermediate_size", "causal-lm", {}, [48, 64]),
    ("decoder_intermediate_size", "seq2seq-lm", {}, [None, 64]),
    ("hidden_act", "causal-lm", {}, ["relu", "gelu", "gelu_pytorch_tanh", "silu", "relu2"]),
    ("feed_forward", "causal-lm", {}, [*FEED_FORWARDS.names(), "swiglu", "reglu"]),
    ("mlp_bias", "causal-lm", {}, [True, False]),
    ("mlp_inner_norm", "causal-lm", {}, [True, False]),
    ("mlp_inner_norm", "causal-lm", {"feed_forward": "gated"}, [True, False]),
    ("attention_bias", "causal-lm", {"attention_out_bias": True}, [True, False]),
    ("attention_out_bias", "causal-lm", {}, [True, False]),
    ("attention_scale", "causal-lm", {}, [*map(str, AttentionScale), 3.0]),
    ("attention_scale", "masked-lm", RELATIVE, [*map(str, AttentionScale), 3.0]),
    ("attn_logit_softcapping", "causal-lm", {}, [None, 1.0, 2.0]),
    ("qk_norm", "causal-lm", {"norm": "rmsnorm"}, [None, *map(str, QKNorm)]),
    ("sliding_window", EVERY_STACK, {}, [None, 3, 5]),
    ("layer_types", "causal-lm", {"sliding_window": 3}, [["sliding_attention", "full_attention"], ["full_attention"]]),
    ("layer_types", "causal-lm", {"sliding_window": 3}, [["full_attention", "sliding_attention"], None]),
    ("norm", "causal-lm", {}, NORMS.names()),
    ("norm_placement", "causal-lm seq2seq-lm", {"final_norm": True}, list(map(str, NormPlacement))),
    ("norm_placement", "causal-lm", {"parallel_residual": True, "final_norm": True}, list(map(str, NormPlacement))),
    ("layer_norm_eps", "causal-lm", {}, [1e-5, 1e-2]),
    ("layer_norm_eps", "causal-lm", {"norm": "rmsnorm"}, [1e-5, 1e-2]),
    ("embedding_norm_eps", "causal-lm", {"embedding_norm": True}, [None, 1e-2]),
    ("final_norm", "causal-lm", {}, [True, False]),
    ("embedding_norm", "causal-lm", {}, [True, False]),
    ("mixer", "causal-lm", {}, MIXERS.names()),
    ("residual", "causal-lm", {}, RESIDUALS.names()),
    ("residual_scaling", "causal-lm", {}, [None, *map(str, ResidualScaling)]),
    ("parallel_residual", EVERY_STACK, {}, [True, False]),
    ("share_layers", "causal-lm", {}, [True, False]),
    ("position", EVERY_STACK, {}, READ_BY_ALL),
    ("rope_parameters", "causal-lm", {"position": "rotary"}, [ROPE, {**ROPE, "rope_theta": 100.0}]),
    ("rope_parameters", "causal-lm", {"position": "rotary"}, [ROPE, {**ROPE, "partial_rotary_factor": 0.5}]),
    ("rope_parameters", "causal-lm", {"position": "rotary"}, [ROPE, {**ROPE, "rope_type": "linear", "factor": 2.0}]),
    (
        "rope_parameters",
        "causal-lm",
        {"position": "rotary-interleaved"},
        [ROPE, {**ROPE, "partial_rotary_factor": 0.5}],
    ),
    ("nope_layers", "causal-lm", {"position": "rotary"}, [None, [False, True], [True, False], [True]]),
    ("nope_layers", "masked-lm", {"position": "alibi"}, [None, [False, True], [True, False], [True]]),
    (
        "rope_parameters",
        "causal-lm",
        {"position": "rotary-by-layer", "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
        [None, {"full_attention": ROPE, "sliding_attention": ROPE}],
    ),
    ("max_position_embeddings", "causal-lm", {}, [24, 30]),
    ("sinusoidal_theta", "causal-lm", {"position": "sinusoidal"}, [10000.0, 100.0]),
    ("sinusoidal_theta", "causal-lm", {"position": "sinusoidal-halves"}, [10000.0, 100.0]),
    ("relative_attention_num_buckets", "causal-lm", {"position": "t5"}, [32, 8]),
    ("relative_attention_num_buckets", "masked-lm", RELATIVE, [8, 4]),
    ("relative_attention_max_distance", "masked-lm", {**RELATIVE, "relative_attention_num_buckets": 16}, [40, 12]),
    ("position", "masked-lm", {"attention": "disentangled"}, POSITIONS.names()),
    ("relative_attention_max_distance", "causal-lm", {"position": "t5", "relative_attention_num_buckets": 8}, [128, 9]),
    ("scale_embedding", "causal-lm", {}, [True, False]),
    ("tie_word_embeddings", EVERY_STACK, {}, [True, False]),
    ("share_encoder_decoder_embeddings", "seq2seq-lm", {}, [True, False]),
    ("share_encoder_decoder_embeddings", "seq2seq-lm", {"tie_word_embeddings": True}, [True, False]),
    ("lm_head_bias", "causal-lm", {}, [True, False]),
    ("lm_head_transform", "masked-lm causal-lm", {}, [True, False]),
    ("lm_head_transform_act", "masked-lm", {"lm_head_transform": True}, [None, "relu"]),
    ("lm_head_transform_bias", "causal-lm", {"lm_head_transform": True}, [True, False]),
    ("logit_scale", "causal-lm", {}, [1.0, 0.5]),
    ("final_logit_softcapping", "causal-lm", {}, [None, 1.0]),
    ("classifier_pooling", "sequence-classification", {}, list(map(str, Pooling))),
    ("classifier_pooler_act", "sequence-classification", {}, [None, "tanh", "relu"]),
    ("classifier_positions", "sequence-classification", {}, [None, 3, 5]),
    ("classifier_bias", "sequence-classification token-classification", {}, [True, False]),
]
TRAINED = [
    ("dropout", "causal-lm", [0.0, 0.5]),
    ("attention_dropout", "causal-lm", [0.0, 0.5]),
    ("activation_dropout", "causal-lm", [0.0, 0.5]),
    ("classifier_dropout", "sequence-classification", [0.0, 0.5]),
    ("classifier_dropout", "token-classification", [0.0, 0.5]),
]
INITIAL: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("initializer", {"norm_placement": "deepnorm", "scale_embedding": True}, INITIALIZERS.names()),
    ("initializer_range", {"initializer": "normal"}, [0.02, 0.1]),
    ("initializer_width", {"initializer": "normal"}, [1, 768]),
    ("layer_scale_init", {"residual_scaling": "layer-scale"}, [1e-4, 0.5]),
    ("dyt_alpha", {"norm": "dyt"}, [0.5, 0.9]),
]
OF_THE_MODEL = {
    "variant": "chooses the builder; every variant has its own tests",
    "quirks": "read by builders",
    "provider": "read when a plugin is missing",
    "providers": "read when a plugin is missing",
    "attention": "has one ordinary value; quirks and plugins add others",
    "is_decoder": "chosen by the task",
    "is_encoder_decoder": "chosen by the task",
    "add_cross_attention": "set by the encoder-decoder",
    "masked_next_token": "read by the loss of masked language models, tested with GPT-BERT",
    "use_cache": "tested with generation",
    "pad_token_id": "read by generation and label shifting",
    "decoder_pad_token_id": "read by label shifting",
    "bos_token_id": "read by generation",
    "eos_token_id": "read by generation",
    "decoder_start_token_id": "read by label shifting",
}


def build(task: str, settings: dict[str, Any]) -> ZooPreTrainedModel:
    return zoo.build("pre-norm", task, seed=0, dtype=torch.float64, **{**BASE, "initializer": "normal", **settings})


def fingerprint(task: str, settings: dict[str, Any], train: bool = False) -> tuple[Any, Tensor]:
    """The parameters' names and shapes (tied ones once), and the output once all hold the same numbers."""
    model = build(task, {"attn_implementation": "eager", **settings})
    # Numbers that depend on the parameter's name only.
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        with torch.no_grad():
            parameter.copy_(
                0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) + (parameter.ndim < 2)
            )
    inputs = {"input_ids": token_ids(2, LENGTH, 37, 0), "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}
    inputs["attention_mask"][0, -4:] = 0
    inputs["attention_mask"][1, :3] = 0
    if task == "seq2seq-lm":
        inputs["decoder_input_ids"] = token_ids(2, LENGTH, 37, 1)
    torch.manual_seed(0)
    with torch.no_grad():
        output = model.train(train)(**inputs).logits
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}, output


def differ(one: tuple[Any, Tensor], other: tuple[Any, Tensor]) -> bool:
    if one[0] != other[0] or one[1].shape != other[1].shape:
        return True
    return (one[1] - other[1]).abs().max().item() > 1e-6


@pytest.mark.parametrize(
    ("field", "task", "common", "values"),
    [
        pytest.param(field, task, *rest, id=f"{field}-{task}-{index}")
        for index, (field, tasks, *rest) in enumerate(SWITCHES)
        for task in tasks.split()
    ],
)
def test_every_value_of_a_setting_makes_another_model(
    field: str, task: str, common: dict[str, Any], values: list[Any]
) -> None:
    prints = [fingerprint(task, {**common, field: value}) for value in values]
    if field in SETTINGS:
        same_shapes = all(other[0] == prints[0][0] for other in prints)
        assert SETTINGS[field].changes in (("numbers", "shapes") if same_shapes else ("shapes",))
    for first in range(len(values)):
        for second in range(first):
            assert differ(prints[first], prints[second]), f"{field}={values[first]!r} equals {field}={values[second]!r}"


@pytest.mark.parametrize(
    ("field", "task", "values"), TRAINED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_dropout_acts_in_training_and_only_there(field: str, task: str, values: list[float]) -> None:
    rest = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0}
    for train in (True, False):
        off, on = (fingerprint(task, {**rest, field: value}, train=train) for value in values)
        assert differ(off, on) == train


@pytest.mark.parametrize(
    ("field", "common", "values"), INITIAL, ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_initialisation_gives_other_weights(field: str, common: dict[str, Any], values: list[Any]) -> None:
    states = [build("causal-lm", {**common, field: value}).state_dict() for value in values]
    for first in range(len(values)):
        for second in range(first):
            same = [torch.equal(states[first][name], states[second][name]) for name in states[first]]
            assert not all(same), f"{field}={values[first]!r} equals {field}={values[second]!r}"


def test_every_effect_is_declared() -> None:
    trained = {row[0] for row in (*TRAINED, *INITIAL)}
    assert {name for name, one in SETTINGS.items() if one.changes == "training"} == trained
    assert {name for name, one in SETTINGS.items() if one.changes == "nothing"} <= OF_THE_MODEL.keys()


def test_every_field_of_the_configuration_is_covered() -> None:
    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(ZooConfig)} - inherited | set(OF_THE_MODEL)
    covered = {row[0] for row in [*SWITCHES, *TRAINED, *INITIAL]} | set(OF_THE_MODEL)
    assert own - covered == set(), "these fields have no test that shows their effect"
    assert covered - own - {"layer_types", "rope_parameters", "tie_word_embeddings"} == set()


def test_randomizing_reaches_every_parameter() -> None:
    model = build("seq2seq-lm", {"residual_scaling": "rezero"})
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    randomize(model)
    assert all((parameter != before[name]).all() for name, parameter in model.named_parameters())


@pytest.mark.parametrize("given", [{"pad_token_id": None, "tie_word_embeddings": True}, {"eos_token_id": None}, {}])
def test_a_saved_configuration_leaves_no_field_to_defaults(given):
    config = zoo.config("pre-norm", "causal-lm", **given)
    saved = config.to_diff_dict()
    assert Fields.__annotations__.keys() & {field.name for field in dataclasses.fields(ZooConfig)} <= saved.keys()
    assert ZooConfig.from_dict(saved).to_dict() == config.to_dict()
