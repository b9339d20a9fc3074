"""Slopes of ALiBi, and buckets of T5."""

import pytest
import torch
from models.formulas import close, config, randomized
from transformers.models.t5.modeling_t5 import T5Attention

import zoo
from zoo.base.errors import InputError
from zoo.models import POSITIONS

SIZES = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}

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


TREE = [[0, 1, 2, 2, 3, 3]]  # Positions of a trunk of two tokens, and of two branches after it


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_positions_that_distances_of_places_contradict_are_refused(position: str) -> None:
    model = zoo.build("pre-norm", task="causal-lm", seed=0, **SIZES, position=position).double().eval()
    encoder = zoo.build("pre-norm", task="masked-lm", seed=0, **SIZES, position=position).eval()
    kinds = {"sliding_window": 1, "layer_types": ["full_attention", "sliding_attention"]}
    windowed = zoo.build("pre-norm", task="causal-lm", **{**SIZES, **kinds, "num_hidden_layers": 2}, position=position)
    ids, tree = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor(TREE)
    ancestors = torch.tensor([[0, 0], [1, 0], [2, 0], [2, 1], [3, 0], [3, 1]])  # depth and branch
    sees = (
        torch.tensor([[a[0] < b[0] and a[1] in (0, b[1]) for a in ancestors] for b in ancestors]) | torch.eye(6).bool()
    )
    masks = {"full_attention": sees[None, None], "sliding_attention": torch.eye(6)[None, None].bool()}
    for called in (
        lambda: model(ids, attention_mask=sees[None, None], position_ids=tree),
        lambda: model(ids, attention_mask=torch.ones_like(ids), position_ids=tree),
        lambda: encoder(ids, position_ids=tree),
        lambda: windowed(ids, attention_mask=masks, position_ids=tree),
    ):
        with pytest.raises(InputError, match="do not count on by one"):
            called()
    close(model(ids, position_ids=tree).logits[:, :3], model(ids[:, :3]).logits)  # packed documents
    close(model(ids, position_ids=torch.arange(6)[None] + 3).logits, model(ids).logits)
    padded, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 0, 1, 1]])
    shown = model(padded, attention_mask=mask, position_ids=torch.tensor([[0, 0, 0, 1]])).logits[:, 2:]
    close(shown, model(ids[:, :2]).logits)


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
