"""Position encodings against formulas written out in plain loops, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from models.formulas import HEADS, WIDTH, close, config, random, randomized
from transformers.models.t5.modeling_t5 import T5Attention

from zoo.models import POSITIONS

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
