"""Each symmetry changes settings and weights, and not what the model computes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_models import largest_difference, outputs, zoo_model

from zoo.converters import transforms
from zoo.converters.symmetries import SYMMETRIES, find_route
from zoo.converters.weights import model_with, task_of, weights_of

CASES = {
    "permute-residual": ("d2l-style", None, {}, {"position": "sinusoidal-halves"}),
    "permute-residual-mlm": (
        "pre-norm",
        "masked-lm",
        dict(position="sinusoidal", tie_word_embeddings=True, lm_head_transform=True),
        {"position": "sinusoidal-halves"},
    ),
    "store-table": ("d2l-style", None, {}, {"position": "learned"}),
    "store-table-of-none": ("pre-norm", "causal-lm", dict(position="none"), {"position": "learned"}),
    "split-rotary-halves": ("gptj-style", None, dict(head_dim=8, num_attention_heads=2), {"position": "rotary"}),
    "interleave-rotary-pairs": ("llama-style", None, {}, {"position": "rotary-interleaved"}),
    "shift-norm-weights": ("gemma2-style", None, dict(qk_norm="head"), {"norm": "zero-centered-rmsnorm"}),
    "shift-norm-weights-back": ("llama-style", None, dict(norm="zero-centered-rmsnorm"), {"norm": "rmsnorm"}),
    "move-attention-scale": (
        "vanilla",
        None,
        dict(attention_scale="hidden-size", decoder_attention_heads=2),
        {"attention_scale": "head-dim"},
    ),
    "pad-source-vocabulary": ("vanilla", None, dict(decoder_vocab_size=23), {"vocab_size": 23}),
    "zero-attention-bias": ("d2l-style", None, {}, {"attention_bias": True}),
    "zero-attention-out-bias": ("d2l-style", None, {}, {"attention_out_bias": True}),
    "zero-feed-forward-bias": ("llama-style", None, {}, {"mlp_bias": True}),
    "zero-transform-bias": (
        "bert-style",
        "masked-lm",
        dict(lm_head_transform_bias=False),
        {"lm_head_transform_bias": True},
    ),
    "zero-output-bias": ("llama-style", None, {}, {"lm_head_bias": True}),
    "repeat-key-value-heads": ("llama-style", None, dict(num_key_value_heads=2), {"num_key_value_heads": 4}),
    "move-embedding-scale": ("llama-style", None, dict(tie_word_embeddings=True), {"scale_embedding": True}),
    "move-embedding-scale-back": ("vanilla", None, {}, {"scale_embedding": False}),
    "move-logit-scale": (
        "pre-norm",
        "causal-lm",
        dict(logit_scale=0.3, tie_word_embeddings=True),
        {"logit_scale": 1.0},
    ),
    "copy-shared-layers": ("pre-norm", "seq2seq-lm", dict(share_layers=True), {"share_layers": False}),
    "separate-embeddings": ("marian-style", None, {}, {"share_encoder_decoder_embeddings": False}),
    "fold-residual-scale": ("pre-norm", "seq2seq-lm", dict(residual_scaling="layer-scale"), {"residual_scaling": None}),
    "fold-residual-scale-rezero": ("rezero", "causal-lm", {}, {"residual_scaling": None}),
    "divide-by-deepnorm-alpha": ("deepnorm", "causal-lm", {}, {"norm_placement": "post"}),
    "rescale-stream-post": ("post-norm", "seq2seq-lm", dict(tie_word_embeddings=True), {"layer_norm_eps": 1e-3}),
    "rescale-stream-post-final": ("post-norm", "seq2seq-lm", dict(final_norm=True), {"layer_norm_eps": 1e-3}),
    "rescale-stream-pre": ("pre-norm", "seq2seq-lm", {}, {"layer_norm_eps": 1e-3}),
    "rescale-stream-pre-unfinished": ("pre-norm", "seq2seq-lm", dict(final_norm=False), {"layer_norm_eps": 1e-3}),
    "rescale-stream-body": ("pre-norm", "feature-extraction", {}, {"layer_norm_eps": 1e-3}),
    "rescale-stream-rmsnorm": ("llama-style", None, dict(tie_word_embeddings=True), {"layer_norm_eps": 1e-3}),
    "rescale-embeddings": ("post-norm", "masked-lm", dict(tie_word_embeddings=True), {"embedding_norm_eps": 1e-2}),
    "zero-token-types": ("bert-style", "masked-lm", {}, {"type_vocab_size": 2}),
    "zero-classifier-bias": (
        "nlpt-encoder",
        "sequence-classification",
        dict(classifier_bias=False),
        {"classifier_bias": True},
    ),
    "pad-feed-forward": ("nlpt-encoder", "sequence-classification", {}, {"intermediate_size": 64}),
    "ignore-blind-rows": ("vanilla", None, dict(quirks=("masked-rows-are-uniform",)), {"attention": "multi-head"}),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_stay_the_same(case):
    name, task, overrides, wanted = CASES[case]
    model = zoo_model(name, task, **overrides)
    task = task_of(model)
    route = find_route(model.config, wanted, task)
    assert route.obstacles == ()
    assert any(case.startswith(step.symmetry.name) for step in route.steps)
    before = {key: value.clone() for key, value in weights_of(model).items()}
    changed = model_with(route.config, task, route(weights_of(model)))
    assert all(torch.equal(before[key], value) for key, value in weights_of(model).items())
    ours, theirs = outputs(model), outputs(changed)
    assert largest_difference(ours, theirs[..., : ours.shape[-1]]) < 1e-11 * max(1.0, float(ours.abs().max()))
    for field, value in wanted.items():
        assert getattr(changed.config, field) == value


def test_padded_target_ids_are_never_predicted():
    model = zoo_model("vanilla", decoder_vocab_size=18)
    route = find_route(model.config, {"decoder_vocab_size": 20}, "seq2seq-lm")
    logits = outputs(model_with(route.config, "seq2seq-lm", route(weights_of(model))))
    assert largest_difference(logits[..., :18], outputs(model)) < 1e-12
    assert (logits[..., 18:] < -1e8).all()


def test_every_symmetry_has_a_case():
    covered = {name for name in SYMMETRIES for case in CASES if case.startswith(name)}
    assert set(SYMMETRIES) - covered == {"pad-target-vocabulary", "untie-output"}


@pytest.mark.parametrize(
    ("name", "task", "overrides", "wanted"),
    [
        ("d2l-style", "feature-extraction", {}, {"position": "sinusoidal-halves"}),
        ("sandwich-norm", "causal-lm", {}, {"norm_placement": "pre"}),
        ("post-norm", "seq2seq-lm", dict(embedding_norm=False), {"embedding_norm": True}),
        ("pre-norm", "seq2seq-lm", {}, {"embedding_norm": True}),
        ("nlpt-encoder", "sequence-classification", {}, {"classifier_pooler_act": "tanh"}),
        ("pre-norm", "masked-lm", dict(position="sinusoidal"), {"layer_norm_eps": 1e-3}),
        ("qk-norm", "causal-lm", {}, {"layer_norm_eps": 1e-3}),
        ("deepnorm", "seq2seq-lm", {}, {"norm_placement": "post"}),
        ("gpt2-style", "causal-lm", {}, {"attention_bias": False}),
        ("vanilla", "seq2seq-lm", {}, {"vocab_size": 3}),
        ("gpt2-style", "causal-lm", dict(layer_norm_eps=0.0), {"layer_norm_eps": 1e-5}),
        ("gpt2-style", "causal-lm", {}, {"layer_norm_eps": 0.0}),
        ("bert-style", "masked-lm", dict(embedding_norm_eps=0.0), {"embedding_norm_eps": 1e-5}),
        ("bert-style", "masked-lm", {}, {"embedding_norm_eps": 0.0}),
        # Weights that read or write the stream, of other names
        ("mixtral-style", "causal-lm", {}, {"layer_norm_eps": 1e-3}),
        ("mixtral-style", "causal-lm", {}, {"intermediate_size": 64}),
        ("lfm2-style", "causal-lm", dict(qk_norm=None), {"layer_norm_eps": 1e-3}),
        ("llama-style:attention=gated", "causal-lm", dict(norm_placement="post"), {"layer_norm_eps": 1e-3}),
        ("pre-norm:position=sinusoidal", "causal-lm", dict(attention="latent"), {"position": "sinusoidal-halves"}),
        ("pre-norm:position=sinusoidal", "causal-lm", dict(residual="lambdas"), {"position": "sinusoidal-halves"}),
        ("deepnorm", "causal-lm", dict(feed_forward="moe"), {"norm_placement": "post"}),
        ("olmo2-style", "causal-lm", dict(num_key_value_heads=2), {"num_key_value_heads": 4}),
    ],
)
def test_where_none_leads_the_obstacle_is_named(name, task, overrides, wanted):
    model = zoo_model(name, task, **overrides)
    route = find_route(model.config, wanted, task)
    (field,) = wanted
    assert len(route.obstacles) == 1
    assert field in route.obstacles[0]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_every_transform_is_undone_by_its_inverse(heads, pairs, seed):
    generator = torch.Generator().manual_seed(seed)
    width = 2 * pairs
    rows = heads * width
    matrix = torch.randn(rows, width, generator=generator)
    for transform in (
        transforms.TRANSPOSE,
        transforms.permute(transforms.evens_then_odds(width)),
        transforms.permute(torch.randperm(rows, generator=generator), dim=0),
        transforms.pairs_to_halves(heads, width),
        transforms.split(heads),
        transforms.split(heads, then=transforms.permute(transforms.evens_then_odds(rows), dim=0)),
        transforms.skip_rows(2).inverse,
        transforms.LEADING_AXIS.inverse,
    ):
        (back,) = transform.backward(transform.forward((matrix,)))
        assert torch.equal(back, matrix)
    parts = matrix.chunk(heads)
    assert all(
        torch.equal(a, b)
        for a, b in zip(transforms.join(heads).backward(transforms.join(heads).forward(parts)), parts, strict=True)
    )
