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
    "permute-residual": ("d2l-style", None, {"position": "sinusoidal-halves"}),
    "permute-residual-mlm": (
        "pre-norm:position=sinusoidal,tie_word_embeddings=True,lm_head_transform=True",
        "masked-lm",
        {"position": "sinusoidal-halves"},
    ),
    "store-table": ("d2l-style", None, {"position": "learned"}),
    "store-table-of-none": ("pre-norm:position=none", "causal-lm", {"position": "learned"}),
    "split-rotary-halves": ("gptj-style:head_dim=8,num_attention_heads=2", None, {"position": "rotary"}),
    "interleave-rotary-pairs": ("llama-style", None, {"position": "rotary-interleaved"}),
    "shift-norm-weights": ("gemma2-style:qk_norm=head", None, {"norm": "zero-centered-rmsnorm"}),
    "shift-norm-weights-back": ("llama-style:norm=zero-centered-rmsnorm", None, {"norm": "rmsnorm"}),
    "move-attention-scale": (
        "vanilla:attention_scale=hidden-size,decoder_attention_heads=2",
        None,
        {"attention_scale": "head-dim"},
    ),
    "pad-source-vocabulary": ("vanilla:decoder_vocab_size=23", None, {"vocab_size": 23}),
    "zero-attention-bias": ("d2l-style", None, {"attention_bias": True}),
    "zero-attention-out-bias": ("d2l-style", None, {"attention_out_bias": True}),
    "zero-feed-forward-bias": ("llama-style", None, {"mlp_bias": True}),
    "zero-transform-bias": ("bert-style:lm_head_transform_bias=False", "masked-lm", {"lm_head_transform_bias": True}),
    "zero-output-bias": ("llama-style", None, {"lm_head_bias": True}),
    "repeat-key-value-heads": ("llama-style:num_key_value_heads=2", None, {"num_key_value_heads": 4}),
    "move-embedding-scale": ("llama-style:tie_word_embeddings=True", None, {"scale_embedding": True}),
    "move-embedding-scale-back": ("vanilla", None, {"scale_embedding": False}),
    "move-logit-scale": ("pre-norm:logit_scale=0.3,tie_word_embeddings=True", "causal-lm", {"logit_scale": 1.0}),
    "copy-shared-layers": ("pre-norm:share_layers=True", "seq2seq-lm", {"share_layers": False}),
    "separate-embeddings": ("marian-style", None, {"share_encoder_decoder_embeddings": False}),
    "fold-residual-scale": ("pre-norm:residual_scaling=layer-scale", "seq2seq-lm", {"residual_scaling": None}),
    "fold-residual-scale-rezero": ("rezero", "causal-lm", {"residual_scaling": None}),
    "divide-by-deepnorm-alpha": ("deepnorm", "causal-lm", {"norm_placement": "post"}),
    "rescale-stream-post": ("post-norm:tie_word_embeddings=True", "seq2seq-lm", {"layer_norm_eps": 1e-3}),
    "rescale-stream-post-final": ("post-norm:final_norm=True", "seq2seq-lm", {"layer_norm_eps": 1e-3}),
    "rescale-stream-pre": ("pre-norm", "seq2seq-lm", {"layer_norm_eps": 1e-3}),
    "rescale-stream-pre-unfinished": ("pre-norm:final_norm=False", "seq2seq-lm", {"layer_norm_eps": 1e-3}),
    "rescale-stream-body": ("pre-norm", "feature-extraction", {"layer_norm_eps": 1e-3}),
    "rescale-stream-rmsnorm": ("llama-style:tie_word_embeddings=True", None, {"layer_norm_eps": 1e-3}),
    "rescale-embeddings": ("post-norm:tie_word_embeddings=True", "masked-lm", {"embedding_norm_eps": 1e-2}),
    "zero-token-types": ("bert-style", "masked-lm", {"type_vocab_size": 2}),
    "zero-classifier-bias": (
        "nlpt-encoder:classifier_bias=False",
        "sequence-classification",
        {"classifier_bias": True},
    ),
    "pad-feed-forward": ("nlpt-encoder", "sequence-classification", {"intermediate_size": 64}),
    "ignore-blind-rows": ("vanilla+masked-rows-are-uniform", None, {"attention": "multi-head"}),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_stay_the_same(case):
    name, task, wanted = CASES[case]
    model = zoo_model(name, task)
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
    ("name", "task", "wanted"),
    [
        ("d2l-style", "feature-extraction", {"position": "sinusoidal-halves"}),
        ("sandwich-norm", "causal-lm", {"norm_placement": "pre"}),
        ("post-norm:embedding_norm=False", "seq2seq-lm", {"embedding_norm": True}),
        ("pre-norm", "seq2seq-lm", {"embedding_norm": True}),
        ("nlpt-encoder", "sequence-classification", {"classifier_pooler_act": "tanh"}),
        ("pre-norm:position=sinusoidal", "masked-lm", {"layer_norm_eps": 1e-3}),
        ("qk-norm", "causal-lm", {"layer_norm_eps": 1e-3}),
        ("deepnorm", "seq2seq-lm", {"norm_placement": "post"}),
        ("gpt2-style", "causal-lm", {"attention_bias": False}),
        ("vanilla", "seq2seq-lm", {"vocab_size": 3}),
        ("gpt2-style:layer_norm_eps=0.0", "causal-lm", {"layer_norm_eps": 1e-5}),
        ("gpt2-style", "causal-lm", {"layer_norm_eps": 0.0}),
        ("bert-style:embedding_norm_eps=0.0", "masked-lm", {"embedding_norm_eps": 1e-5}),
        ("bert-style", "masked-lm", {"embedding_norm_eps": 0.0}),
        # Weights that read or write the stream, of other names
        ("mixtral-style", "causal-lm", {"layer_norm_eps": 1e-3}),
        ("mixtral-style", "causal-lm", {"intermediate_size": 64}),
        ("lfm2-style:qk_norm=None", "causal-lm", {"layer_norm_eps": 1e-3}),
        ("llama-style:attention=gated,norm_placement=post", "causal-lm", {"layer_norm_eps": 1e-3}),
        ("pre-norm:position=sinusoidal,attention=latent", "causal-lm", {"position": "sinusoidal-halves"}),
        ("pre-norm:position=sinusoidal,residual=lambdas", "causal-lm", {"position": "sinusoidal-halves"}),
        ("deepnorm:feed_forward=moe", "causal-lm", {"norm_placement": "post"}),
        ("olmo2-style:num_key_value_heads=2", "causal-lm", {"num_key_value_heads": 4}),
    ],
)
def test_where_none_leads_the_obstacle_is_named(name, task, wanted):
    model = zoo_model(name, task)
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
        transforms.permute(transforms.evens_then_odds(rows), dim=0).then(transforms.split(heads)),
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
