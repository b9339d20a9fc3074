"""The shared parts against formulas written out in plain loops, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

import zoo
from zoo.models import POSITIONS, DynamicTanh, FeedForward, GatedFeedForward, LayerNorm, RMSNorm, ZooConfig
from zoo.models.attention import build_attention
from zoo.models.residual import build_residual, deepnorm_constants

WIDTH, HEADS, LENGTH = 12, 3, 7
HEAD = WIDTH // HEADS


def config(**settings: Any) -> ZooConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 11,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "intermediate_size": 10,
    }
    made = ZooConfig(**{**sizes, "dropout": 0.0, **settings})
    made._attn_implementation = "eager"
    return made


def randomized(module: torch.nn.Module, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7
    return module.eval()


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(got: Tensor, expected: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(
        got.detach(), torch.as_tensor(expected, dtype=torch.float64), atol=tolerance, rtol=tolerance
    )


# Norms ----------------------------------------------------------------------------------------------------------------


def layer_norm(vector: list[float], weight: Tensor, bias: Tensor, eps: float) -> list[float]:
    mean = sum(vector) / len(vector)
    variance = sum((x - mean) ** 2 for x in vector) / len(vector)
    return [
        float(w) * (x - mean) / math.sqrt(variance + eps) + float(b)
        for x, w, b in zip(vector, weight, bias, strict=True)
    ]


def test_layer_norm_subtracts_the_mean_and_divides_by_the_deviation() -> None:
    norm, x = randomized(LayerNorm(WIDTH, config(layer_norm_eps=0.1))), random(4, WIDTH)
    close(norm(x), [layer_norm(row.tolist(), norm.weight, norm.bias, 0.1) for row in x])


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    norm, x = randomized(RMSNorm(WIDTH, config(layer_norm_eps=0.1))), random(4, WIDTH)
    roots = [math.sqrt(sum(v * v for v in row.tolist()) / WIDTH + 0.1) for row in x]
    expected = [
        [float(w) * v / root for v, w in zip(row.tolist(), norm.weight, strict=True)]
        for row, root in zip(x, roots, strict=True)
    ]
    close(norm(x), expected)


def test_dynamic_tanh_squashes_every_element() -> None:
    norm, x = randomized(DynamicTanh(WIDTH, config())), random(4, WIDTH)
    alpha = float(norm.alpha)
    rows = [zip(row.tolist(), norm.weight.tolist(), norm.bias.tolist(), strict=True) for row in x]
    close(norm(x), [[w * math.tanh(alpha * v) + b for v, w, b in row] for row in rows])


# Residual connections -------------------------------------------------------------------------------------------------

DEPTH = 6
ALPHA = (2 * DEPTH) ** 0.25


@pytest.mark.parametrize(
    ("placement", "scaling", "formula"),
    [
        ("post", None, lambda x, f, r: r.norm_out(x + f(x))),
        ("pre", None, lambda x, f, r: x + f(r.norm_in(x))),
        ("sandwich", None, lambda x, f, r: x + r.norm_branch(f(r.norm_in(x)))),
        ("res-post", None, lambda x, f, r: x + r.norm_branch(f(x))),
        ("deepnorm", None, lambda x, f, r: r.norm_out(ALPHA * x + f(x))),
        ("none", None, lambda x, f, r: x + f(x)),
        ("none", "rezero", lambda x, f, r: x + float(r.scale.weight) * f(x)),
        ("pre", "layer-scale", lambda x, f, r: x + r.scale.weight * f(r.norm_in(x))),
        ("sandwich", "layer-scale", lambda x, f, r: x + r.scale.weight * r.norm_branch(f(r.norm_in(x)))),
    ],
)
def test_every_norm_placement_is_its_formula(placement: str, scaling: str | None, formula: Any) -> None:
    settings = {"norm_placement": placement, "residual_scaling": scaling, "num_hidden_layers": DEPTH}
    residual, x = randomized(build_residual(config(**settings))), random(2, 5, WIDTH)
    matrix = random(WIDTH, WIDTH, seed=2)

    def sublayer(states: Tensor) -> Tensor:
        return torch.tanh(states @ matrix)

    norms = {name for name in ("norm_in", "norm_branch", "norm_out") if list(getattr(residual, name).parameters())}
    used = {
        "post": {"norm_out"},
        "pre": {"norm_in"},
        "sandwich": {"norm_in", "norm_branch"},
        "res-post": {"norm_branch"},
    }
    assert norms == {**used, "deepnorm": {"norm_out"}, "none": set()}[placement]
    for name in norms:
        norm = getattr(residual, name)
        by_hand = [layer_norm(row.tolist(), norm.weight, norm.bias, 1e-5) for row in x.reshape(-1, WIDTH)]
        close(norm(x).reshape(-1, WIDTH), by_hand)
    close(residual(x, sublayer), formula(x, sublayer, residual).detach())


def test_deepnorm_constants_are_those_of_the_papers_table() -> None:
    """Wang et al. 2022, table 1: architectures by rows, N encoder and M decoder layers."""
    n, m = 5, 9
    encoder_only = deepnorm_constants(config(num_hidden_layers=n))
    assert encoder_only == pytest.approx(((2 * n) ** (1 / 4), (8 * n) ** (-1 / 4)))
    decoder_only = deepnorm_constants(config(num_hidden_layers=m, is_decoder=True))
    assert decoder_only == pytest.approx(((2 * m) ** (1 / 4), (8 * m) ** (-1 / 4)))
    both = config(num_hidden_layers=n, decoder_layers=m, is_encoder_decoder=True)
    encoder = deepnorm_constants(both)
    assert encoder == pytest.approx((0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)))
    assert deepnorm_constants(both.decoder_config()) == pytest.approx(((3 * m) ** (1 / 4), (12 * m) ** (-1 / 4)))


def test_deepnorm_initialises_values_outputs_and_feed_forward_with_gain_beta() -> None:
    depth, width = 6, 96
    sizes: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": width}
    model = zoo.build("deepnorm", "causal-lm", seed=0, vocab_size=9, num_attention_heads=4, **sizes)
    beta = (8 * depth) ** -0.25
    xavier = math.sqrt(2 / (width + width))
    layer = model.model.layers[3]
    for linear, gain in (
        (layer.self_attn.q_proj, 1.0),
        (layer.self_attn.k_proj, 1.0),
        (layer.self_attn.v_proj, beta),
        (layer.self_attn.o_proj, beta),
        (layer.mlp.up_proj, beta),
        (layer.mlp.down_proj, beta),
    ):
        assert linear.weight.std().item() == pytest.approx(gain * xavier, rel=0.05)


def test_depth_scaled_initialisation_shrinks_what_writes_to_the_residual_stream() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 96,
        "num_hidden_layers": 8,
        "intermediate_size": 96,
        "num_attention_heads": 4,
    }
    layer = zoo.build("gpt2-style", seed=0, vocab_size=9, **sizes).model.layers[2]
    for linear, std in (
        (layer.self_attn.q_proj, 0.02),
        (layer.mlp.up_proj, 0.02),
        (layer.self_attn.o_proj, 0.02 / 4),
        (layer.mlp.down_proj, 0.02 / 4),
    ):
        assert linear.weight.std().item() == pytest.approx(std, rel=0.05)


# Feed-forward networks ------------------------------------------------------------------------------------------------


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: float) -> float:
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


ACTIVATIONS: list[tuple[str, Any]] = [
    ("relu", lambda x: max(x, 0.0)),
    ("gelu", gelu),
    ("gelu_pytorch_tanh", gelu_tanh),
    ("gelu_new", gelu_tanh),
    ("silu", lambda x: x / (1 + math.exp(-x))),
    ("relu2", lambda x: max(x, 0.0) ** 2),
]


def affine(linear: torch.nn.Linear, vector: list[float]) -> list[float]:
    bias = [0.0] * linear.out_features if linear.bias is None else linear.bias.tolist()
    return [
        sum(w * v for w, v in zip(row, vector, strict=True)) + b
        for row, b in zip(linear.weight.tolist(), bias, strict=True)
    ]


@pytest.mark.parametrize(("act", "function"), ACTIVATIONS, ids=[name for name, _ in ACTIVATIONS])
def test_feed_forward_is_two_affine_maps_with_an_activation_between(act: str, function: Any) -> None:
    mlp, x = randomized(FeedForward(config(hidden_act=act))), random(3, WIDTH)
    close(mlp(x), [affine(mlp.down_proj, [function(v) for v in affine(mlp.up_proj, row)]) for row in x.tolist()], 1e-9)


@pytest.mark.parametrize(
    ("name", "function"),
    [("swiglu", ACTIVATIONS[4][1]), ("geglu", gelu), ("reglu", ACTIVATIONS[0][1])],
    ids=["swiglu", "geglu", "reglu"],
)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_gated_feed_forward_multiplies_by_the_activated_gate(name: str, function: Any, bias: bool) -> None:
    mlp, x = randomized(GatedFeedForward(config(feed_forward=name, mlp_bias=bias))), random(3, WIDTH)
    expected = []
    for row in x.tolist():
        gate, up = affine(mlp.gate_proj, row), affine(mlp.up_proj, row)
        expected.append(affine(mlp.down_proj, [function(g) * u for g, u in zip(gate, up, strict=True)]))
    close(mlp(x), expected, 1e-9)


# Attention ------------------------------------------------------------------------------------------------------------


def attention_by_loops(attention: Any, x: Tensor, visible: Any, *, scale: float, cap: float | None = None) -> Tensor:
    """softmax(q k / scale) v head by head, query by query, key by key."""
    groups = attention.q_proj.out_features // attention.k_proj.out_features
    query, key, value = (
        torch.tensor([affine(proj, row) for row in x.tolist()], dtype=torch.float64)
        for proj in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    rows = []
    for i in range(len(x)):
        mixed: list[float] = []
        for head in range(HEADS):
            mine = slice(head * HEAD, (head + 1) * HEAD)
            theirs = slice(head // groups * HEAD, (head // groups + 1) * HEAD)
            keys = [j for j in range(len(x)) if visible(i, j)]
            scores = [float(query[i, mine] @ key[j, theirs]) / scale for j in keys]
            if cap is not None:
                scores = [cap * math.tanh(score / cap) for score in scores]
            exponentials = [math.exp(score) for score in scores]
            weights = [exponential / sum(exponentials) for exponential in exponentials]
            mixed += [
                sum(w * float(value[j, c]) for w, j in zip(weights, keys, strict=True))
                for c in range(*theirs.indices(WIDTH))
            ]
        rows.append(affine(attention.o_proj, mixed))
    return torch.tensor(rows, dtype=torch.float64)


def additive(visible: Any) -> Tensor:
    allowed = torch.tensor([[visible(i, j) for j in range(LENGTH)] for i in range(LENGTH)])
    return torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64).masked_fill(~allowed, torch.finfo(torch.float64).min)


@pytest.mark.parametrize(
    ("settings", "scale", "cap"),
    [
        ({}, math.sqrt(HEAD), None),
        ({"num_key_value_heads": 1}, math.sqrt(HEAD), None),
        ({"attention_scale": "hidden-size"}, math.sqrt(WIDTH), None),
        ({"attention_scale": "none"}, 1.0, None),
        ({"attention_scale": 2.5}, 2.5, None),
        ({"attn_logit_softcapping": 0.8}, math.sqrt(HEAD), 0.8),
        ({"attention_bias": False}, math.sqrt(HEAD), None),
        ({"attention_bias": False, "attention_out_bias": True}, math.sqrt(HEAD), None),
    ],
)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_attention_is_its_formula(settings: dict[str, Any], scale: float, cap: float | None, causal: bool) -> None:
    def visible(i: int, j: int) -> bool:
        return j <= i or not causal

    attention, x = randomized(build_attention(config(**settings), 0, is_causal=causal)), random(LENGTH, WIDTH)
    out, _ = attention(x[None], additive(visible))
    close(out[0], attention_by_loops(attention, x, visible, scale=scale, cap=cap), 1e-10)


def test_grouped_queries_share_keys_in_order() -> None:
    """Query heads 0 and 1 read key-value head 0, heads 2 and 3 read head 1."""
    settings = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3}
    grouped = randomized(build_attention(config(**settings), 0))
    full = randomized(build_attention(config(num_attention_heads=4, head_dim=3), 0))
    for name in ("q_proj", "o_proj"):
        getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            by_head = getattr(getattr(grouped, name), kind).unflatten(0, (2, 3))
            getattr(getattr(full, name), kind).data = by_head[[0, 0, 1, 1]].flatten(0, 1)
    x = random(2, LENGTH, WIDTH)
    close(grouped(x)[0], full(x)[0].detach())


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_sliding_window_lets_a_query_see_that_many_keys(task: str, window: int) -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 11,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
    }
    model = zoo.build("pre-norm", task, seed=0, sliding_window=window, attn_implementation="eager", **sizes)
    with torch.no_grad():
        weights = model(torch.arange(LENGTH)[None], output_attentions=True).attentions[0]
    seen = [[j for j in range(LENGTH) if weights[0, :, i, j].min() > 0] for i in range(LENGTH)]
    for i in range(LENGTH):
        if task == "causal-lm":
            assert seen[i] == [j for j in range(LENGTH) if 0 <= i - j < window]
        else:
            assert i in seen[i]
            assert all(abs(i - j) <= window for j in seen[i])
            assert all((j in seen[i]) == (i in seen[j]) for j in range(LENGTH))


@pytest.mark.parametrize("kind", ["head", "full"])
def test_qk_norm_normalises_each_head_or_the_whole_projection(kind: str) -> None:
    attention = randomized(build_attention(config(qk_norm=kind, norm="rmsnorm"), 0))
    x = random(LENGTH, WIDTH)
    query = torch.tensor([affine(attention.q_proj, row) for row in x.tolist()], dtype=torch.float64)
    groups = query.unflatten(-1, (HEADS, HEAD)) if kind == "head" else query[:, None]
    roots = (groups.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = (groups / roots * attention.q_norm.weight).reshape(LENGTH, HEADS, HEAD).transpose(0, 1)
    close(attention.project_heads(attention.q_proj, attention.q_norm, x[None])[0], expected.detach())


# Positions ------------------------------------------------------------------------------------------------------------

PLACES = torch.tensor([[0, 1, 2, 5, 40]])


@pytest.mark.parametrize(("name", "width"), [("sinusoidal", 12), ("sinusoidal-halves", 12), ("sinusoidal", 10)])
def test_sinusoids_are_those_of_the_paper(name: str, width: int) -> None:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same."""
    part = POSITIONS.get(name)(config(hidden_size=width, num_attention_heads=2, position=name))
    table = part.embed(torch.zeros(1, PLACES.shape[1], width, dtype=torch.float64), PLACES)[0]
    for row, place in zip(table, PLACES[0].tolist(), strict=True):
        angles = [place / 10000 ** (2 * i / width) for i in range(width // 2)]
        sines, cosines = [math.sin(a) for a in angles], [math.cos(a) for a in angles]
        pairs = [value for pair in zip(sines, cosines, strict=True) for value in pair]
        close(row, pairs if name == "sinusoidal" else sines + cosines, 1e-5)


@pytest.mark.parametrize("name", ["rotary", "rotary-interleaved"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_rotary_multiplies_pairs_as_complex_numbers(name: str, fraction: float) -> None:
    """RoFormer, equation 16: the pair of features i is turned by p / theta^(2i/d)."""
    width = 8
    rope = {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": fraction}
    made = config(position=name, head_dim=width, rope_parameters=rope)
    part, turned = POSITIONS.get(name)(made), int(width * fraction)
    query, key = random(1, HEADS, PLACES.shape[1], width), random(1, 1, PLACES.shape[1], width, seed=3)
    rotated = part.rotate(query, key, part.rotation(query, PLACES))
    for before, after in zip((query, key), rotated, strict=True):
        for place, row, got in zip(PLACES[0].tolist(), before[0, 0], after[0, 0], strict=True):
            expected = row.tolist()
            for i in range(turned // 2):
                one, two = (i, i + turned // 2) if name == "rotary" else (2 * i, 2 * i + 1)
                angle = place / 50.0 ** (2 * i / turned)
                number = complex(row[one], row[two]) * complex(math.cos(angle), math.sin(angle))
                expected[one], expected[two] = number.real, number.imag
            close(got, expected, 1e-5)


ALIBI_SLOPES = {
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    4: [1 / 4, 1 / 16, 1 / 64, 1 / 256],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    # The slopes of 2 and 4 heads, then every other slope of twice as many (Press et al. 2021, the authors' code).
    3: [1 / 16, 1 / 256, 1 / 4],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
}


@pytest.mark.parametrize("heads", ALIBI_SLOPES)
@pytest.mark.parametrize("decoder", [True, False], ids=["decoder", "encoder"])
def test_alibi_subtracts_a_slope_times_the_distance(heads: int, decoder: bool) -> None:
    made = config(position="alibi", num_attention_heads=heads, head_dim=4, is_decoder=decoder)
    bias = POSITIONS.get("alibi")(made).bias(torch.arange(4) + 2, torch.arange(6))
    expected = [[[-slope * abs(q + 2 - k) for k in range(6)] for q in range(4)] for slope in ALIBI_SLOPES[heads]]
    close(bias[0].double(), expected, 1e-6)


@pytest.mark.parametrize("decoder", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (6, 7)])
def test_relative_buckets_are_t5s_own(decoder: bool, buckets: int, distance: int) -> None:
    settings = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": distance}
    part = POSITIONS.get("t5")(config(position="t5", is_decoder=decoder, **settings))
    distances = torch.arange(-200, 201)
    expected = T5Attention._relative_position_bucket(
        distances, bidirectional=not decoder, num_buckets=buckets, max_distance=distance
    )
    assert part.bucket(distances).tolist() == expected.tolist()
    table = randomized(part).weight
    bias = part.bias(torch.arange(5), torch.arange(5))
    assert bias[0, 1, 4, 1].item() == table[expected[200 - 3], 1].item()


def test_learned_positions_are_looked_up() -> None:
    part = randomized(POSITIONS.get("learned")(config(max_position_embeddings=50)))
    close(part.embed(torch.ones(1, 5, WIDTH, dtype=torch.float64), PLACES)[0], (1 + part.weight[PLACES[0]]).detach())
