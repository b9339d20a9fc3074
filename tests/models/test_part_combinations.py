"""Any valid combination of settings makes a model that runs, learns, stays causal, saves and loads."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models.formulas import run_checks

from zoo.models import FEED_FORWARDS, INITIALIZERS, MIXERS, NORMS, POSITIONS, RESIDUALS
from zoo.models.choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling
from zoo.registry import TASKS, VariantSpec

BUILT_IN_INITIALIZERS = [name for name in INITIALIZERS.names() if INITIALIZERS.origin(name).built_in]


def words(enumeration: Any) -> st.SearchStrategy[str]:
    return st.sampled_from([str(member) for member in enumeration])


@st.composite
def configurations(draw: Any) -> tuple[str, dict[str, Any]]:
    """A task, and a valid setting of every axis."""
    heads = draw(st.sampled_from([1, 2, 4]))
    flags = ["mlp_bias", "attention_bias", "mlp_inner_norm", "embedding_norm", "parallel_residual", "share_layers"]
    flags += ["scale_embedding", "tie_word_embeddings", "share_encoder_decoder_embeddings", "lm_head_bias"]
    flags += ["lm_head_transform", "final_norm", "attention_out_bias"]
    chosen: dict[str, Any] = {flag: draw(st.booleans()) for flag in flags}
    chosen |= {
        "vocab_size": 23,
        "hidden_size": 16,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 4) if heads % n == 0])),
        "head_dim": draw(st.sampled_from([None, 4, 6])),
        "intermediate_size": 20,
        "max_position_embeddings": 16,
        "hidden_act": draw(st.sampled_from(["relu", "gelu", "gelu_pytorch_tanh", "silu", "relu2"])),
        "feed_forward": draw(st.sampled_from([*FEED_FORWARDS.names(), "swiglu", "geglu", "reglu"])),
        "norm": draw(st.sampled_from(NORMS.names())),
        "norm_placement": draw(words(NormPlacement)),
        "qk_norm": draw(st.none() | words(QKNorm)),
        "residual": draw(st.sampled_from(RESIDUALS.names())),
        "residual_scaling": draw(st.none() | words(ResidualScaling)),
        "position": draw(st.sampled_from([name for name in POSITIONS.names() if not POSITIONS.get(name).read_by])),
        "attention_scale": draw(words(AttentionScale) | st.just(2.0)),
        "attn_logit_softcapping": draw(st.sampled_from([None, 5.0])),
        "final_logit_softcapping": draw(st.sampled_from([None, 5.0])),
        "sliding_window": draw(st.sampled_from([None, 2])),
        "classifier_pooling": draw(words(Pooling)),
        "classifier_pooler_act": draw(st.sampled_from([None, "tanh"])),
        "initializer": draw(st.sampled_from(BUILT_IN_INITIALIZERS)),
    }
    if chosen["sliding_window"] is not None and draw(st.booleans()):
        chosen["layer_types"] = ["sliding_attention", "full_attention"][: chosen["num_hidden_layers"]]
    task = draw(st.sampled_from(list(TASKS)))
    if chosen["residual"] == "depth-weighted-average":  # for the layers of one stack, each with its own weights
        chosen |= {"residual": "plain"} if task == "seq2seq-lm" else {"share_layers": False}
    if chosen["residual"] == "no-first-norm":
        chosen["share_layers"] = False
    if task == "causal-lm" and chosen["num_hidden_layers"] > 1 and not chosen["share_layers"] and draw(st.booleans()):
        chosen["mixer"] = draw(st.sampled_from(MIXERS.names()))
        chosen.pop("layer_types", None)
    if task == "seq2seq-lm":
        chosen["decoder_layers"] = draw(st.integers(1, 2))
        chosen["decoder_vocab_size"] = (
            None if chosen["share_encoder_decoder_embeddings"] else draw(st.sampled_from([23, 29]))
        )
    return str(task), chosen


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(120, marks=pytest.mark.nightly)])
def test_every_combination_of_parts_works(count: int) -> None:
    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(configurations())
    def works(drawn: tuple[str, dict[str, Any]]) -> None:
        is_a_model(*drawn)

    works()


CHECKED = (
    "output_has_its_documented_shape",
    "padding_on_the_right_changes_nothing",
    "decoder_is_causal",
    "generation_with_a_cache_equals_without",
    "saves_and_reloads_bit_equal",
)


def is_a_model(task: str, chosen: dict[str, Any]) -> None:
    """A model with settings runs, learns, stays causal, saves and loads."""
    subject = run_checks(str(VariantSpec("pre-norm", overrides=chosen)), task, CHECKED)
    model = subject.copy()
    subject.loss(model).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
